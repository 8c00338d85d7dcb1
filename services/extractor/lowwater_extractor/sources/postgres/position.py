"""What a PostgreSQL stream needs to begin again, and how it knows that it reads the same log as before.

A server that was restored from files of an earlier time has the same identity and timeline, and its log soon reaches
the position again, with other transactions in it. So the log is read from where the slot stands, which is a little
before the position: what was handed over last must come again there, with the same id at the same place, and between
it and the position there must be nothing.
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
    """The place in the log, and what it was read under."""

    lsn: Lsn
    #: oids by name
    publications: Mapping[str, int] = field(default_factory=dict)
    #: of the tables that the config names
    tables: int = 0
    #: the end and the id of the last transaction that was handed over; 0: none yet
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
                # as it was written before: publications only
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
    """Passes on what is new. `begin`: from where on the log is read; what lies up to the position was read before."""

    def __init__(self, source: str, resume: Resume, begin: Lsn, *, is_same_config: bool) -> None:
        self._source = source
        self._resume = resume
        #: nothing is acknowledged before
        self.is_passed = begin >= resume.lsn
        #: where other tables are captured now, or by other publications, other transactions come
        self._is_checked = is_same_config and bool(resume.last)
        self._is_found = begin >= resume.last

    def new(self, found: list[SourceTransaction], read_to: int) -> list[SourceTransaction]:
        """`read_to`: all that commits up to there has come."""
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
                raise self._other(f"transaction {resume.xid} at {format_lsn(resume.last)} is not there any more")
        return [transaction for transaction in found if transaction.order.major > resume.lsn]

    def _other(self, what: str) -> IncarnationError:
        return IncarnationError(
            f"the server's log is not the one that was read before: {what}",
            source=self._source,
            thread=1,
            position=format_lsn(self._resume.lsn),
            hint="the server was restored from files of an earlier time: reset the source, and its tables are copied "
            "again",
        )
