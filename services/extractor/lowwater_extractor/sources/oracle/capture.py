"""Opens the redo stream of a database. Used by every source kind that reads redo files."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lowwater.records.positions import Order
from lowwater_extractor.snapshot.stale_notes import StaleTables
from lowwater_extractor.sources.oracle.dictionary.dictionary import Dictionary
from lowwater_extractor.sources.oracle.position import LeftOut, Resume, fresh, resumed
from lowwater_extractor.sources.oracle.redo.events import Captured
from lowwater_extractor.sources.oracle.redo.layout import Place
from lowwater_extractor.sources.oracle.redo.reader import ThreadReader
from lowwater_extractor.sources.oracle.rows.changes import FrameMaker
from lowwater_extractor.sources.oracle.stream import Hooks, RedoOptions, RedoStream, Start
from lowwater_extractor.sources.oracle.thread_snapshot import RedoView
from lowwater_extractor.sources.oracle.transactions.assembler import Assembler
from lowwater_extractor.spill import SpillSpace


def redo_stream(
    source: str,
    view: RedoView,
    maker: FrameMaker,
    captured: Callable[[], Captured],
    resumes: Mapping[int, bytes],
    marks: Mapping[int, Order],
    options: RedoOptions,
    acknowledged: Callable[[dict[int, int]], None] | None = None,
    notes: Callable[[], dict[str, bytes]] = dict,
    stale: StaleTables | None = None,
) -> RedoStream:
    """Open the stream at `resumes`, or at the start of capture if there are none.

    `captured` is called for each part of the log; it returns the same object as long as the captured set is unchanged.
    """
    incarnation, look = view.incarnation(), view.look()
    left_out: list[LeftOut] = []
    if resumes:
        saved = {number: Resume.unpack(data) for number, data in resumes.items()}
        places = resumed(source, incarnation, look, saved, view.files)
    else:
        places, left_out = fresh(source, incarnation, look, view.start(), view.files, leave_out=options.leave_out)
    space = SpillSpace(options.spill_directory)

    def new_reader(thread: int, start: Place, objects: Captured) -> ThreadReader:
        slice_max = max(1 << 14, options.read_bytes // max(1, len(look.threads)))
        return ThreadReader(
            source, thread, view.identity, view.files, objects, start, slice_max=slice_max, zone=options.zone
        )

    start = Start(look, places, marks, left_out, is_new=places.keys() != resumes.keys())
    assembler = Assembler(source, maker, space, spill_bytes_max=options.spill_bytes_max, stale=stale)
    return RedoStream(source, view, start, assembler, new_reader, Hooks(captured, notes, acknowledged), options)


class CapturedObjects:
    """The captured objects of a dictionary: the same object until the dictionary's revision changes."""

    def __init__(self, dictionary: Dictionary) -> None:
        self._dictionary = dictionary
        self._revision = -1
        self._found = Captured.of(())

    def __call__(self) -> Captured:
        if self._revision != self._dictionary.revision:
            self._revision = self._dictionary.revision
            self._found = captured_objects(self._dictionary)
        return self._found


def captured_objects(dictionary: Dictionary) -> Captured:
    """The objects in the dictionary; for a live dictionary also all objects created after it."""
    objects, data = set(), set()
    for version in dictionary:
        objects |= {(version.container, each) for each in version.object_ids}
        data |= {(version.container, each) for each in version.data_object_ids or version.object_ids}
    return Captured.of(objects, data)._replace(newest=dictionary.newest)
