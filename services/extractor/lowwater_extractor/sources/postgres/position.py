"""The stored position of a PostgreSQL stream, and the check that the server's log is the one that was read before.

A server restored from an older file backup keeps its system identifier and timeline, and its log soon passes the stored
position again with different transactions. Reading therefore starts at the slot's confirmed LSN, a little before the
stored position: the last transaction returned before must appear there with the same xid and end LSN, and no other
transaction may lie between it and the position.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lowwater.errors import CodecError, IncarnationError
from lowwater_extractor.api import SourceTransaction
from lowwater_extractor.sources.postgres.catalogue_watch.table_facts import fingerprint
from lowwater_extractor.sources.postgres.wire.lsn import Lsn, format_lsn, parse_lsn


@dataclass(frozen=True, slots=True)
class Resume:
    """The position in the log, with the publications and table patterns that it was read with."""

    lsn: Lsn
    #: oids by name
    publications: Mapping[str, int] = field(default_factory=dict)
    #: fingerprint of the table patterns in the config
    tables: int = 0
    #: end LSN and xid of the last transaction that was returned; 0: none yet
    last: int = 0
    xid: str = ""

    def pack(self) -> bytes:
        rest = {"publications": dict(self.publications), "tables": self.tables, "last": self.last, "xid": self.xid}
        return f"{format_lsn(self.lsn)} {json.dumps(rest)}".encode()

    @classmethod
    def unpack(cls, data: bytes) -> Resume:
        try:
            place, _, written = data.decode().partition(" ")
            rest = json.loads(written or "{}")
            if "publications" not in rest:
                # the older format: publications only
                return cls(parse_lsn(place), rest)
            return cls(parse_lsn(place), rest["publications"], rest["tables"], rest["last"], rest["xid"])
        except (ValueError, TypeError, KeyError) as error:
            raise CodecError(
                f"the position {data[:40]!r} cannot be read",
                hint="was it written by a newer lowwater? upgrade this one; or reset the source",
            ) from error


def tables_print(patterns: Sequence[str]) -> int:
    return fingerprint(*sorted(patterns))


class SameLog:
    """Drops transactions up to the stored position and checks that they are those that were read before.

    `begin`: the LSN that reading starts at.
    """

    def __init__(self, source: str, resume: Resume, begin: Lsn, *, is_same_config: bool) -> None:
        self._source = source
        self._resume = resume
        #: the log was read past the stored position and checked; nothing is acknowledged before
        self.is_passed = begin >= resume.lsn
        #: with different tables or publications, the server sends different transactions: no check is possible
        self._is_checked = is_same_config and bool(resume.last)
        self._is_found = begin >= resume.last

    def new(self, found: list[SourceTransaction], read_to: int) -> list[SourceTransaction]:
        """Return the transactions after the stored position. `read_to`: the LSN up to which the log was received.

        Raises IncarnationError if the log is a different one.
        """
        if self.is_passed:
            return found
        resume = self._resume
        for transaction in found:
            end = transaction.order.major
            if end == resume.last and transaction.txid == resume.xid:
                self._is_found = True
            elif self._is_checked and resume.last <= end <= resume.lsn:
                raise self._other(f"transaction {transaction.txid} at {format_lsn(end)} was not there before")
        if read_to >= resume.lsn:
            self.is_passed = True
            if self._is_checked and not self._is_found:
                raise self._other(f"transaction {resume.xid} at {format_lsn(resume.last)} is missing")
        return [transaction for transaction in found if transaction.order.major > resume.lsn]

    def _other(self, what: str) -> IncarnationError:
        return IncarnationError(
            f"the server's log is not the one that was read before: {what}",
            source=self._source,
            thread=1,
            position=format_lsn(self._resume.lsn),
            hint="the server was restored from an older backup: reset the source, and its tables are copied again",
        )
