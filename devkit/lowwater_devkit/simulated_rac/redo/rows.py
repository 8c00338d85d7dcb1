"""Rows in redo format: column bytes, null bitmaps, row pieces, supplemental data.

`RedoTable` converts one row change to `Pair`s: one for a row in one piece, several for a row of more than 255 columns
or more bytes than fit into a piece, and for a row that migrates because it has outgrown its block. `vectors` adds the
fields of the transaction.

A row's place follows from its key, so that it need not be stored; only the places of rows in several pieces, of
migrated rows and of rows whose key has changed are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from lowwater.codec.table import TableSchema
from lowwater_devkit.simulated_rac.redo.cells import (
    PAD,
    Cell,
    Cells,
    cells_of,
    oracle_column,
    row_bytes,
    sizes_of,
)
from lowwater_devkit.simulated_rac.redo.kdo import (
    FIRST,
    GROUP_DELETE,
    GROUP_INSERT,
    GROUP_UPDATE,
    HEAD,
    ITL,
    LAST,
    WHOLE,
    Kdo,
    Place,
    packed_row,
)
from lowwater_devkit.simulated_rac.redo.log import Form
from lowwater_devkit.simulated_rac.redo.pairs import (
    DELETE_MANY,
    FORWARD,
    INSERT_MANY,
    KDO_UNDO,
    OVERWRITE,
    Pair,
    Segment,
)
from lowwater_devkit.simulated_rac.redo.pieces import Group, PieceMaker, Pieces, piece_of

Row = Sequence[Any]

#: the data file of all tables; its tablespace is a smallfile one, so the file number is part of the address
DATA_FILE = 24
TABLESPACE = 6
FIRST_OBJECT = 72726
#: blocks of one table, and rows in a block
BLOCKS_PER_TABLE, ROWS_PER_BLOCK = 1 << 16, 100
_FILE_BLOCKS = 1 << 21
#: blocks for pieces that are not the head of a row
OVERFLOW_BLOCKS = 1 << 12
COLUMNS_PER_PIECE_MAX = 255
PIECE_BYTES_MAX = 7000
#: maximum rows of one multi-row change: their count is one byte
ROWS_AT_ONCE_MAX = 200


class RedoTable:
    """Converts changes of one table's rows to pairs of KDOs."""

    def __init__(
        self,
        form: Form,
        schema: TableSchema,
        number: int,
        *,
        supplemental: str = "all",
        piece_bytes_max: int = PIECE_BYTES_MAX,
        migrate_bytes: int = 0,
    ) -> None:
        """`supplemental`: "all", "key" or "none". A row that grows by `migrate_bytes` leaves its block (0: never)."""
        if supplemental not in ("all", "key", "none"):
            raise ValueError(f"supplemental logging is all, key or none, not {supplemental!r}")
        self.schema = schema
        self.name = schema.full_name
        self.columns = [oracle_column(column, at) for at, column in enumerate(schema.columns, 1)]
        self.key = [at for at, column in enumerate(schema.columns) if column.name in schema.key]
        first = DATA_FILE << 22 | (128 + (number - 1) * (BLOCKS_PER_TABLE + OVERFLOW_BLOCKS)) % _FILE_BLOCKS
        object_id = FIRST_OBJECT + 2 * (number - 1)
        self.segment = Segment(object_id, object_id, TABLESPACE, DATA_FILE, first)
        self.index = Segment(object_id + 1, object_id + 1, TABLESPACE, DATA_FILE, first + 1)
        self._cells = [
            cells_of(each, column.type.kind) for each, column in zip(self.columns, schema.columns, strict=True)
        ]
        self._piece_bytes_max = piece_bytes_max
        self._migrate_bytes = migrate_bytes
        self._kdo = Kdo(form, first)
        self._pieces = PieceMaker(self.segment, self._kdo, self.key, supplemental)
        self._one_key = self.key[0] if len(self.key) == 1 else -1
        self._overflow = 0
        #: pieces of rows whose places do not follow from their key, by key
        self._special: dict[tuple[Cell, ...], Pieces] = {}
        #: every row is in one piece, and its place follows from a key of one column
        self._small = not migrate_bytes and self._one_key >= 0 and self._largest() <= piece_bytes_max - 64
        self._insert_group = self._pieces.group(GROUP_INSERT, 0, 1)
        self._delete_group = self._pieces.group(GROUP_DELETE, 1, 0)

    def _largest(self) -> int:
        wide = len(self.columns) > COLUMNS_PER_PIECE_MAX
        return 1 << 30 if wide else sum(column.length for column in self.columns)

    def encode(self, row: Row) -> list[Cell]:
        if len(row) != len(self._cells):
            raise ValueError(f"{self.name} has {len(self._cells)} columns, the row has {len(row)}")
        return [cell(value) for cell, value in zip(self._cells, row, strict=True)]

    # --- one row

    def insert(self, row: Row) -> list[Pair]:
        cells = self.encode(row)
        cuts = self._cuts(cells)
        head = self._home(row, cells)
        if len(cuts) == 1:
            return [self._pieces.insert(head, cells, WHOLE, None, self._insert_group)]
        places = [head, *[self._new_place() for _ in cuts[1:]]]
        self._special[self._key_of(cells)] = Pieces(places, cuts)
        pairs: list[Pair] = []
        # the last piece first: each piece points to the next
        for at in reversed(range(len(cuts))):
            fb = (HEAD | FIRST if at == 0 else 0) | (LAST if at == len(cuts) - 1 else 0)
            after = places[at + 1] if at + 1 < len(cuts) else None
            # in the group, first and last refer to the order in the log, not in the row
            mark = (FIRST if at == len(cuts) - 1 else 0) | (LAST if at == 0 else 0)
            group = self._pieces.group(GROUP_INSERT, 0, cuts[at] + 1, mark, head)
            pairs.append(self._pieces.insert(places[at], piece_of(cells, cuts, at), fb, after, group, head, not pairs))
        return pairs

    def delete(self, row: Row) -> list[Pair]:
        cells = self.encode(row)
        found = self._pieces_of(row, cells)
        places, cuts = found.places, found.cuts
        if len(cuts) == 1:
            return [self._pieces.delete(places[0], cells, WHOLE, None, self._delete_group)]
        pairs: list[Pair] = []
        for at, place in enumerate(places):
            mark = (FIRST if at == 0 else 0) | (LAST if at == len(places) - 1 else 0)
            piece = piece_of(cells, cuts, at)
            group = self._pieces.group(GROUP_DELETE, cuts[at] + 1 if piece else 0, 0, mark, places[0])
            after = places[at + 1] if at + 1 < len(places) else None
            pairs.append(self._pieces.delete(place, piece, found.flags(at), after, group, not pairs))
        return pairs

    def update(self, before: Row, after: Row) -> list[Pair]:
        old, new = self.encode(before), self.encode(after)
        if self._small and not self._special and old[self._one_key] == new[self._one_key]:
            place = self._home(before, old)
            return [self._pieces.update(place, place, old, new, 0, WHOLE, FIRST | LAST, True)]
        return self._update(old, new, self._pieces_of(before, old))

    def update_many(self, rows: Sequence[tuple[Row, Row]]) -> list[Pair]:
        """The updates of one statement, (before, after), in order: until it ends two rows may have the same key."""
        olds = [self.encode(before) for before, _ in rows]
        found = [self._pieces_of(before, old) for (before, _), old in zip(rows, olds, strict=True)]
        news = [self.encode(after) for _, after in rows]
        return [pair for each in zip(olds, news, found, strict=True) for pair in self._update(*each)]

    def emptied(self) -> None:
        """Forget all rows, after TRUNCATE."""
        self._special.clear()

    def _update(self, old: Cells, new: Cells, found: Pieces) -> list[Pair]:
        places, moves = found.places, self._migrates(old, new, found)
        if moves:
            found = Pieces([places[0], self._new_place()], [0, 0])
        if found.kept or any(old[at] != new[at] for at in self.key):
            found.kept = True
            self._special[self._key_of(new)] = found
        if moves:
            return self._migrate(places, found.places[1], old, new)
        if len(found.cuts) == 1:
            return [self._pieces.update(places[0], places[0], old, new, 0, WHOLE, FIRST | LAST, True)]
        return self._update_pieces(found, old, new)

    def _pieces_of(self, row: Row, cells: Cells) -> Pieces:
        """The pieces of a row. The row may have existed before the simulation began."""
        found = self._special.pop(self._key_of(cells), None) if self._special else None
        if found is None:
            cuts = self._cuts(cells)
            found = Pieces([self._home(row, cells), *[self._new_place() for _ in cuts[1:]]], cuts)
        return found

    # --- many rows in one block

    def insert_many(self, rows: Sequence[Row]) -> list[Pair]:
        """The rows of one statement; one pair for the rows of a block. Rows in several pieces have their own pairs."""
        return self._many(rows, INSERT_MANY)

    def delete_many(self, rows: Sequence[Row]) -> list[Pair]:
        return self._many(rows, DELETE_MANY)

    def _many(self, rows: Sequence[Row], code: int) -> list[Pair]:
        one = self.insert if code == INSERT_MANY else self.delete
        pairs: list[Pair] = []
        block: list[tuple[Place, Cells]] = []
        for row in rows:
            cells = self.encode(row)
            special = self._special and self._key_of(cells) in self._special
            if special or len(self._cuts(cells)) > 1:
                pairs += self._block_of(block, code)
                pairs += one(row)
                block = []
                continue
            place = self._home(row, cells)
            size = sum(row_bytes(sizes_of(each)) for _, each in block) + row_bytes(sizes_of(cells))
            if block and (block[0][0][0] != place[0] or len(block) == ROWS_AT_ONCE_MAX or size > self._piece_bytes_max):
                pairs += self._block_of(block, code)
                block = []
            block.append((place, cells))
        return pairs + self._block_of(block, code)

    def _block_of(self, block: list[tuple[Place, Cells]], code: int) -> list[Pair]:
        if not block:
            return []
        kdo, inserted = self._kdo, code == INSERT_MANY
        dba, slots = block[0][0][0], [place[1] for place, _ in block]
        rows = [packed_row(cells, WHOLE, ITL if inserted else 0, kdo.order) for _, cells in block]
        data = b"".join(rows)
        words_size, words = kdo.words([len(row) for row in rows])
        gone_size, gone = kdo.many(dba, DELETE_MANY | (KDO_UNDO if inserted else 0), slots)
        come_size, come = kdo.many(dba, INSERT_MANY | (0 if inserted else KDO_UNDO), slots)
        brief: Group = (gone_size,), gone
        whole: Group = (
            (come_size, words_size, len(data)),
            come + words + data + PAD[len(data) & 3],
        )
        redo, undo = (whole, brief) if inserted else (brief, whole)
        group = self._insert_group if inserted else self._delete_group
        return [Pair(self.segment, code, dba, *redo, *undo, *group, len(block))]

    # --- pieces

    def _update_pieces(self, pieces: Pieces, old: Cells, new: Cells) -> list[Pair]:
        """Updates of the pieces with a changed column; supplements for other pieces with supplemental columns."""
        places, cuts = pieces.places, pieces.cuts
        parts = [(at, piece_of(old, cuts, at), piece_of(new, cuts, at)) for at in range(len(cuts))]
        changed = [at for at, was, now in parts if was != now] or [len(cuts) - 1]
        touched = [part for part in parts if part[0] in changed or self._pieces.wanted(cuts[part[0]], len(part[1]))]
        pairs: list[Pair] = []
        for at, was, now in touched:
            mark = (FIRST if not pairs else 0) | (LAST if len(pairs) == len(touched) - 1 else 0)
            if at in changed:
                flags = pieces.flags(at)
                pair = self._pieces.update(places[at], places[0], was, now, cuts[at], flags, mark, not pairs)
            else:
                pair = self._pieces.supplement(places[at], places[0], was, cuts[at], mark, not pairs)
            pairs.append(pair)
        return pairs

    def _migrate(self, places: list[Place], moved: Place, old: Cells, new: Cells) -> list[Pair]:
        """Move the row to another block; its head stays and points there."""
        head = places[0]
        come = self._pieces.insert(
            moved, new, FIRST | LAST, None, self._pieces.group(GROUP_UPDATE, 0, 1, FIRST, head), head
        )
        if len(places) > 1:
            # it has migrated before
            gone = self._pieces.delete(
                places[1], old, FIRST | LAST, None, self._pieces.group(GROUP_UPDATE, 1, 0, 0, head), counts=False
            )
            group = self._pieces.group(GROUP_UPDATE, 0, 0, LAST, head)
            redo = self._kdo.forward(head, FORWARD, moved, ITL)
            undo = self._kdo.forward(head, FORWARD | KDO_UNDO, places[1], 0)
            return [come, gone, Pair(self.segment, FORWARD, head[0], (32,), redo, (32,), undo, *group, 0)]
        group = self._pieces.group(GROUP_UPDATE, 1, 0, LAST, head)
        size, redo = self._kdo.insert(head, OVERWRITE, HEAD, (), None, moved, ITL)
        sizes = sizes_of(old)
        was, undo = self._kdo.insert(head, OVERWRITE | KDO_UNDO, WHOLE, sizes, None, None, 0)
        fields = b"".join([undo, *[cell[1] for cell in old]])
        return [come, Pair(self.segment, OVERWRITE, head[0], (size,), redo, (was, *sizes), fields, *group, 0)]

    def _migrates(self, old: Cells, new: Cells, found: Pieces) -> bool:
        if not self._migrate_bytes or len(found.cuts) > 1 + found.is_migrated or len(self._cuts(new)) > 1:
            return False
        return row_bytes(sizes_of(new)) - row_bytes(sizes_of(old)) >= self._migrate_bytes

    # --- places

    def _key_of(self, cells: Cells) -> tuple[Cell, ...]:
        return tuple([cells[at] for at in self.key] or cells)

    def _home(self, row: Row, cells: Cells) -> Place:
        """The place of a row by its key: consecutive for integers, by a hash for other keys."""
        value = row[self._one_key] if self._one_key >= 0 else None
        if type(value) is not int:
            value = crc32(b"".join([cell[1] for cell in self._key_of(cells)]))
        block, slot = divmod(value, ROWS_PER_BLOCK)
        return self.segment.header_dba + 8 + block % (BLOCKS_PER_TABLE - 8), slot

    def _new_place(self) -> Place:
        block, slot = divmod(self._overflow, ROWS_PER_BLOCK)
        self._overflow += 1
        return self.segment.header_dba + BLOCKS_PER_TABLE + block % OVERFLOW_BLOCKS, slot

    def _cuts(self, cells: Cells) -> list[int]:
        """The first columns of the row's pieces."""
        if self._small:
            return [0]
        if len(cells) <= COLUMNS_PER_PIECE_MAX and sum(sizes_of(cells)) <= self._piece_bytes_max - 64:
            return [0]
        cuts, size = [0], 0
        for at, cell in enumerate(cells):
            if at > cuts[-1] and (at - cuts[-1] == COLUMNS_PER_PIECE_MAX or size + cell[0] + 3 > self._piece_bytes_max):
                cuts.append(at)
                size = 0
            size += cell[0] + 3
        return cuts
