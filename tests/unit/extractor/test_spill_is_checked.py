"""What comes back from the extractor's spill is what was written, or an error that says where."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowwater.errors import DiskError
from lowwater_extractor.spill import SpillSpace


def _only_file(directory: Path) -> Path:
    (path,) = directory.rglob("*.spill")
    return path


def test_a_piece_that_was_changed_on_disk_is_refused(tmp_path: Path) -> None:
    file = SpillSpace(tmp_path).file()
    file.append(([b"good"], [1]))
    file.append(([b"changed"], [2]))
    path = _only_file(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"changed", b"CHANGED"))
    pieces = iter(file)
    assert next(pieces) == ([b"good"], [1])
    with pytest.raises(DiskError, match="does not match its checksum"):
        next(pieces)


def test_a_file_that_was_cut_is_refused(tmp_path: Path) -> None:
    file = SpillSpace(tmp_path).file()
    file.append(([b"x" * 100], [1]))
    path = _only_file(tmp_path)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(DiskError):
        list(file)


def test_a_file_that_is_gone_is_an_error_with_a_name(tmp_path: Path) -> None:
    file = SpillSpace(tmp_path).file()
    file.append(([b"x"], [1]))
    _only_file(tmp_path).unlink()
    with pytest.raises(DiskError, match="No such file"):
        list(file)


def test_a_directory_that_cannot_be_made_is_an_error_with_a_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskError, match="Not a directory"):
        SpillSpace(tmp_path / "file" / "spill").file()
