"""The position in a CDC table, and the data by which the table is recognised as the same."""

from __future__ import annotations

import json
import zlib
from typing import Any, NamedTuple

from lowwater.errors import CodecError


class Resume(NamedTuple):
    """The last COMMIT that was read. Its time and transaction id identify it.

    Times have a resolution of seconds, so there is also a checksum of the change before it.
    """

    at: int
    time: int
    txn: int

    def pack(self, before: int | None = None) -> bytes:
        """`before`: checksum of the change before the COMMIT, if it was read."""
        found: dict[str, Any] = {"change_id": self.at, "change_time": self.time, "change_txn_id": self.txn}
        if before is not None:
            found["before"] = before
        return json.dumps(found).encode()

    @classmethod
    def unpack(cls, data: bytes) -> Resume:
        return cls.unpack_all(data)[0]

    @classmethod
    def unpack_all(cls, data: bytes) -> tuple[Resume, int | None]:
        try:
            found: dict[str, Any] = json.loads(data)
            numbers = (int(found[name]) for name in ("change_id", "change_time", "change_txn_id"))
            return cls(*numbers), found.get("before")
        except (ValueError, TypeError, KeyError) as error:
            raise CodecError(
                "the position is not one of a CDC table", hint="`lowwater source reset` starts from scratch"
            ) from error


def checksum(row: tuple[Any, ...]) -> int:
    return zlib.crc32(repr(tuple(row)).encode())
