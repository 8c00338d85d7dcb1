"""`python -m lowwater_fleet.kafka.class_archive`: writes a class archive (CDS) of the broker, for faster starts."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from lowwater.runtime.class_archive import making
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from lowwater_fleet.kafka.jars import archive_of, find_jars


def make(archive: Path) -> None:
    with making(archive) as options, tempfile.TemporaryDirectory() as directory:
        broker = EmbeddedKafka(directory, port=0, java_options=options)
        broker.start()
        broker.stop(timeout_seconds=60)


if __name__ == "__main__":
    archive = archive_of(find_jars("kafka"))
    make(archive)
    sys.stdout.write(f"class archive: {archive}, {archive.stat().st_size >> 20} MB\n")
