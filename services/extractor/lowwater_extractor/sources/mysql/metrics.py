"""Metrics of a MySQL source."""

from __future__ import annotations

from prometheus_client import Gauge

from lowwater_extractor.sources.mysql.position import Place, file_number

FILES_BEHIND = Gauge("lowwater_mysql_files_behind", "complete binary log files that are not read yet", ["source"])
BYTES_BEHIND = Gauge("lowwater_mysql_bytes_behind", "unread bytes of the newest binary log file", ["source"])


def show(source: str, end: Place, read: Place) -> None:
    files = max(0, file_number(end.file) - file_number(read.file))
    FILES_BEHIND.labels(source).set(files)
    BYTES_BEHIND.labels(source).set(end.position if files else max(0, end.position - read.position))
