"""`make bench`: speed as ratios to a ceiling measured in the same run, memory as peaks. Nothing is asserted."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from bench import encoder, extractor, landing, latency, merger, mongodb, mysql, postgres, redo, state, turso
from bench.common import Bench, console, save, show
from lowwater_fleet.kafka.embedded import EmbeddedKafka

PARTS: dict[str, Callable[[Bench], None]] = {
    "encoder": encoder.run,
    "extractor": extractor.run,
    "merger": merger.speed,
    "latency": latency.run,
    "memory": merger.memory,
    "landing": landing.speed,
    "tables": landing.many_tables,
    "floor": landing.floor,
    "visible": landing.latency,
    "large": landing.memory,
    "state": state.run,
    "postgres-stream": postgres.stream,
    "postgres-copy": postgres.copy,
    "postgres-latency": postgres.latency,
    "postgres-rate": postgres.highest_rate,
    "postgres-memory": postgres.memory,
    "turso-stream": turso.stream,
    "turso-copy": turso.copy,
    "mysql-stream": mysql.stream,
    "mysql-copy": mysql.copy,
    "redo": redo.scan,
    "redo-memory": redo.memory,
    "mongodb-stream": mongodb.stream,
    "mongodb-copy": mongodb.copy,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help=f"some of: {', '.join(PARTS)} (default: all)")
    parser.add_argument("--scale", type=float, default=1.0, help="less than 1 for a quick look")
    parser.add_argument("--keep", action="store_true", help="write the figures of some parts to bench/results, too")
    arguments = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lowwater-bench-") as directory:
        broker = EmbeddedKafka(Path(directory) / "kafka", port=0, heap_mb=1024)
        broker.start()
        bench = Bench(Path(directory), broker.bootstrap_servers, arguments.scale)
        try:
            extractor.warm_up(bench)
            for part in arguments.parts or PARTS:
                console.print(f"[bold]{part}[/bold]")
                PARTS[part](bench)
        finally:
            broker.kill()
            # of a part that failed in its middle nothing runs on beside what is measured next
            for child in psutil.Process().children(recursive=True):
                child.kill()
    show(bench.results)
    if arguments.keep or (not arguments.parts and arguments.scale == 1.0):
        console.print(f"kept in {save(bench.results, time.monotonic() - started)}")


if __name__ == "__main__":
    main()
