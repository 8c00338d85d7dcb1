"""What services show of themselves: health, metrics, traces, the status topic."""
