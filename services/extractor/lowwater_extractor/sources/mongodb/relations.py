"""The captured collections as tables: their current columns, and their documents as frames.

A source has one registry of shapes: both the stream and the sample before a copy add columns to it. Changed shapes are
stored in notes with the position, so that a restart continues with the same columns.
"""

from __future__ import annotations

from collections.abc import Mapping

from lowwater.codec.encoder import TableEncoder
from lowwater.codec.rules import ColumnRules
from lowwater.codec.table import TableSchema
from lowwater.errors import CodecError, ConfigError
from lowwater_extractor.api import Encoders, Frame
from lowwater_extractor.sources.mongodb.config import MongoConfig
from lowwater_extractor.sources.mongodb.shapes import ID, Grows, Hidden, OtherIdError, RowReader, Shape
from lowwater_extractor.sources.mongodb.types import FieldType

_NOTE = "shape/"


class Shapes:
    """The shapes of all collections, by full name."""

    def __init__(self, config: MongoConfig) -> None:
        self._config = config
        self._by_name: dict[str, Shape] = {}
        self._changed: set[str] = set()
        #: number of changes of any shape
        self.changes = 0
        #: whether an `_id` of a second type changes the column to JSON: only if the collection can be copied again
        self.may_mix_ids = config.mode != "incremental" and config.copy_tables

    def load(self, notes: Mapping[str, bytes]) -> None:
        """Restore the shapes from notes, at the start of a session."""
        self._by_name, self._changed = {}, set()
        for note, data in notes.items():
            if note.startswith(_NOTE):
                name = note.removeprefix(_NOTE)
                database, _, collection = name.partition(".")
                self._by_name[name] = Shape.unpack(database, collection, data)

    def get(self, name: str) -> Shape:
        shape = self._by_name.get(name)
        if shape is None:
            database, _, collection = name.partition(".")
            shape = Shape(database, collection)
        return shape.with_id_as_json() if name in self._config.ids_as_json else shape

    def grow(self, name: str, data: bytes, at: int = 0) -> Shape:
        """Add the fields of one document to the shape."""
        before = self.get(name)
        return self._keep(name, before, before.grown(data, at, self._config.columns_max))

    def mix_ids(self, name: str) -> Shape:
        """Change the column `_id` to JSON."""
        before = self.get(name)
        return self._keep(name, before, before.with_id_as_json())

    def _keep(self, name: str, before: Shape, after: Shape) -> Shape:
        if after != before or name not in self._by_name:
            self._by_name[name] = after
            self._changed.add(name)
            self.changes += 1
        return after

    def forget(self, name: str) -> None:
        """Delete the shape of a dropped collection: a new one of the same name starts with an empty shape."""
        if self._by_name.pop(name, None) is not None:
            self._changed.add(name)
            self.changes += 1

    def notes(self) -> dict[str, bytes]:
        """Return the notes of shapes that changed since the last call; an empty value deletes a note."""
        changed, self._changed = self._changed, set()
        return {_NOTE + n: self._by_name[n].pack() if n in self._by_name else b"" for n in sorted(changed)}


class Table:
    """One collection: converts its documents to frames of its newest version.

    `data` contains one or more documents; `at`, `before`, `after` and `key` are offsets in it. `seen`: updated with the
    newest version when it is used.
    """

    def __init__(
        self, name: str, source: str, config: MongoConfig, shapes: Shapes, encoders: Encoders,
        seen: dict[str, TableSchema],
    ) -> None:  # fmt: skip
        self.name = name
        self._seen = seen
        self._source = source
        self._config = config
        self._shapes = shapes
        self._encoders = encoders
        self._hidden = Hidden.of(encoders.rules, name)
        self._shape = shapes.get(name)
        self._reader = RowReader(self._shape, self._hidden, config.columns_max)
        self._encoder: TableEncoder | None = None

    def _use(self, shape: Shape) -> None:
        self._shape = shape
        self._reader = RowReader(shape, self._hidden, self._config.columns_max)
        self._encoder = None

    def _grow(self, data: bytes, at: int) -> None:
        self._use(self._shapes.grow(self.name, data, at))

    def _ready(self) -> TableEncoder:
        if self._encoder is None:
            table = self._encoders.versioned(self._shape.table(self._source, self._hidden.masked))
            self._encoder = self._encoders.encoder(table)
            self._seen[self.name] = table
        return self._encoder

    def _read(self, data: bytes, at: int) -> list[object]:
        """Return the row of a document; adds columns to the shape if needed."""
        if self._shape.id_type is None:
            self._grow(data, at)
        while True:
            try:
                return self._reader.read(data, at)
            except Grows:
                self._grow(data, at)
            except OtherIdError as error:
                if not self._shapes.may_mix_ids or self._shape.id_type is FieldType.JSON:
                    raise CodecError(error.what, hint=error.hint) from error
                self._use(self._shapes.mix_ids(self.name))

    @property
    def is_known(self) -> bool:
        """Whether a document of the collection was read."""
        return self._shape.id_type is not None

    def created(self) -> None:
        """Register the first version, so that the table can be read before it has a document."""
        if not self.is_known:
            self._ready()

    def refresh(self) -> None:
        """Use the current shape, to which a sample may have added columns."""
        shape = self._shapes.get(self.name)
        if shape != self._shape:
            self._use(shape)
            if self.name in self._seen and self.is_known:
                # so that this version is compared with that of a copy
                self._ready()

    def insert(self, data: bytes, at: int, ts_us: int) -> Frame:
        row = self._read(data, at)
        encoder = self._encoder or self._ready()
        return encoder.header, encoder.insert(row, ts_us)

    def update(self, data: bytes, before: int | None, after: int, ts_us: int) -> Frame:
        row = self._read(data, after)
        if before is None:
            encoder = self._ready()
            return encoder.header, encoder.body("u", None, row, ts_us)
        shape = self._shape
        old = self._read(data, before)
        if self._shape is not shape:
            # the document before the change has changed the shape: a new field, or another type of `_id`
            row = self._read(data, after)
        encoder = self._encoder or self._ready()
        return encoder.header, encoder.update(old + row, ts_us)

    def moved_from(self, data: bytes, key: int, after: int) -> int | None:
        """Return `key` if its `_id` differs from that of `after`, else None.

        The server treats 1 and 1.0 as the same `_id`; they differ only in a column of JSON.
        """
        if self._shape.id_type is not FieldType.JSON:
            return None
        return key if self._read(data, key)[0] != self._read(data, after)[0] else None

    def delete(self, data: bytes, at: int, ts_us: int) -> Frame:
        """Return a delete; `at` is the document, or a document with only its `_id`."""
        row = self._read(data, at)
        encoder = self._encoder or self._ready()
        return encoder.header, encoder.delete(row, ts_us)

    def row(self, data: bytes, at: int, ts_us: int) -> Frame:
        """Return a read of the document (op `r`), not a change."""
        row = self._read(data, at)
        encoder = self._ready()
        return encoder.header, encoder.body("r", None, row, ts_us)

    def truncate(self, ts_us: int) -> Frame:
        encoder = self._ready()
        return encoder.header, encoder.body("t", None, None, ts_us)


def refuse_nested_rules(rules: ColumnRules, config: MongoConfig, source: str) -> None:
    """Raise ConfigError for a rule for a nested field, which would have no effect, or a rule that drops `_id`."""
    names = {name for name in config.tables if not name.endswith(".*")}
    for rule in sorted({*rules.drop, *(rules.mask or {})}):
        for name in names:
            field = rule.removeprefix(f"{name}.")
            if (
                field != rule
                and "." in field
                and not any(rule.startswith(f"{n}.") for n in names if len(n) > len(name))
            ):
                raise ConfigError(
                    f"columns: {rule}: a part of a field cannot be hidden separately",
                    source=source,
                    hint=f"name the whole field: {name}.{field.partition('.')[0]}",
                )
            if field == ID and rule in rules.drop:
                raise ConfigError(f"columns: {rule} is the key", source=source, hint="mask it by hash")
