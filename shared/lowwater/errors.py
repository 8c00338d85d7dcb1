"""Every error of lowwater, each with what to do about it.

    LowwaterError
    ├── ConfigError                 a setting is wrong; nothing was started
    ├── TopicError                  a topic is missing or has other settings than it needs
    ├── BusError                    Kafka could not be asked, or refused
    │   ├── FencedError             another process with our transactional id took over
    │   ├── BusDoubtError           the result of a Kafka transaction is not known: start anew
    │   ├── BusFatalError           the client cannot go on
    │   ├── BusRefusedError         Kafka does not take us: SASL, TLS or an ACL
    │   └── TopicMissingError       a topic is not there, or not yet
    ├── CodecError                  a value does not fit its type, bytes do not fit their schema
    │   └── SchemaError             a schema is unknown or contradicts itself
    ├── DataGoneError               what a reader needs was deleted
    │   └── ProgressLostError       what a merger has released is not known any more
    ├── DiskError                   a local disk is full or cannot be written, or gives back other bytes: tried again
    ├── StoreError                  a lake's store could not be asked, or refused
    │   ├── NotThereError           an object is not there
    │   └── AlreadyThereError       an object is there that was to be created
    ├── LedgerError                 the chain of manifests contradicts itself, or cannot be read
    │   ├── LandingConflictError    another process has landed what this one was about to
    │   └── LakeDamagedError        a manifest or a file is missing, or is not what it was
    ├── SparkError                  a job of Spark's failed: it is tried again from the last manifest
    ├── LandingError                what was read from the ordered topic is not what was released
    ├── LakeError                   a reader asks for what the lake does not have
    │   └── StaleTableError         the state of a table is not known at that gsn
    ├── ControlConflictError        a control write named a version that is no longer the last
    ├── SourceError                 this source stops; the others do not
    │   ├── LogGapError             a log, a sequence or a record is missing
    │   ├── LogCorruptError         a checksum or a structure is wrong
    │   ├── LogUnknownError         a record or a type that we do not know
    │   ├── SourceLostError         the database does not answer: it is tried again
    │   ├── SnapshotGoneError       what a chunk was to be read under is no more: a new plan comes
    │   ├── IncarnationError        the database is not the one that the position belongs to
    │   ├── StartRefusedError       capture cannot begin with whole transactions
    │   ├── MarkBrokenError         a record at or below its thread's mark
    │   └── RowTooLargeError        a row does not fit a Kafka message
    └── MergeError                  the merger stops this source; it then holds its group
        ├── LateError               above its thread's last release, below the source's
        ├── UnknownThreadError      a commit of a thread that no mark has named
        ├── MarkWentBackError       a mark below the one before it
        ├── CountMismatchError      records are missing, or too many
        ├── ChecksumMismatchError   records are there, and differ
        ├── DuplicateIdError        one transaction id, two transactions
        └── TransactionTooLargeError it would not fit one Kafka transaction

`hint` is what an operator does next: the command line prints it, the API returns it.
"""

from __future__ import annotations


class LowwaterError(Exception):
    """Root of all: says what, where and what to do."""

    def __init__(
        self,
        what: str,
        *,
        source: str | None = None,
        thread: int | None = None,
        position: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.source = source
        self.thread = thread
        self.position = position
        self.hint = hint

    def __str__(self) -> str:
        places = (("source", self.source), ("thread", self.thread), ("position", self.position))
        where = ", ".join(f"{name} {value}" for name, value in places if value is not None)
        return f"{self.what}{f' [{where}]' if where else ''}{f' ({self.hint})' if self.hint else ''}"

    def fields(self) -> dict[str, str | int | None]:
        """For logs, `/status` and problem details."""
        return {
            "error": type(self).__name__,
            "what": self.what,
            "source": self.source,
            "thread": self.thread,
            "position": self.position,
            "hint": self.hint,
        }


class ConfigError(LowwaterError):
    pass


class TopicError(LowwaterError):
    pass


class BusError(LowwaterError):
    pass


class FencedError(BusError):
    pass


class BusDoubtError(BusError):
    pass


class BusFatalError(BusError):
    pass


class BusRefusedError(BusError):
    pass


class TopicMissingError(BusError):
    pass


class CodecError(LowwaterError):
    pass


class SchemaError(CodecError):
    pass


class DataGoneError(LowwaterError):
    pass


class ProgressLostError(DataGoneError):
    pass


class DiskError(LowwaterError):
    pass


class ControlConflictError(LowwaterError):
    pass


class SourceError(LowwaterError):
    pass


class LogGapError(SourceError):
    pass


class LogCorruptError(SourceError):
    pass


class LogUnknownError(SourceError):
    pass


class SourceLostError(SourceError):
    pass


class SnapshotGoneError(SourceError):
    pass


class IncarnationError(SourceError):
    pass


class StartRefusedError(SourceError):
    pass


class MarkBrokenError(SourceError):
    pass


class RowTooLargeError(SourceError):
    pass


class MergeError(LowwaterError):
    pass


class LateError(MergeError):
    pass


class UnknownThreadError(MergeError):
    pass


class MarkWentBackError(MergeError):
    pass


class CountMismatchError(MergeError):
    pass


class ChecksumMismatchError(MergeError):
    pass


class DuplicateIdError(MergeError):
    pass


class TransactionTooLargeError(MergeError):
    pass


class StoreError(LowwaterError):
    pass


class NotThereError(StoreError):
    pass


class AlreadyThereError(StoreError):
    pass


class LedgerError(LowwaterError):
    pass


class LandingConflictError(LedgerError):
    pass


class LakeDamagedError(LedgerError):
    pass


class SparkError(LowwaterError):
    pass


class LandingError(LowwaterError):
    pass


class LakeError(LowwaterError):
    pass


class StaleTableError(LakeError):
    """The state of a table is not known at the gsn that was asked for."""
