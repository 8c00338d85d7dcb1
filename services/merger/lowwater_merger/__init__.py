"""The merger: assembles transactions, applies the watermark, releases them in one order."""
