"""The error classes of lowwater.

    LowwaterError
    ├── ConfigError                 a setting is wrong; nothing was started
    ├── TopicError                  a topic is missing or has wrong settings
    ├── BusError                    Kafka did not answer, or rejected a request
    │   ├── FencedError             another process took over the transactional id
    │   ├── BusDoubtError           the result of a Kafka transaction is unknown: a new session begins
    │   ├── BusFatalError           the client met a fatal error: a new client is needed
    │   ├── BusRefusedError         Kafka denies access: SASL, TLS or an ACL
    │   └── TopicMissingError       a topic does not exist, or not yet
    ├── CodecError                  a value does not fit its type, or bytes do not match their schema
    │   └── SchemaError             a schema is unknown or inconsistent
    ├── DataGoneError               records that a reader needs were deleted
    │   └── ProgressLostError       the progress of a merger was lost
    ├── DiskError                   a local disk is full, not writable, or returned wrong bytes: retried
    ├── StoreError                  a lake's store did not answer, or rejected a request
    │   ├── NotThereError           an object does not exist
    │   └── AlreadyThereError       an object to be created exists already
    ├── LedgerError                 the chain of manifests is inconsistent or cannot be read
    │   ├── LandingConflictError    another process landed the same records first
    │   └── LakeDamagedError        a manifest or a file is missing or was modified
    ├── SparkError                  a Spark job failed: retried from the last manifest
    ├── LandingError                records of the ordered topic are missing or inconsistent
    ├── LakeError                   a read asks for something that is not in the lake
    │   └── StaleTableError         the state of a table is unknown at that gsn
    ├── ControlConflictError        a control record names a version that is no longer the last
    ├── SourceError                 this source stops; other sources continue
    │   ├── LogGapError             a log, a sequence or a record is missing
    │   ├── LogCorruptError         a checksum or a structure is wrong
    │   ├── LogUnknownError         a record or type that lowwater does not support
    │   ├── SourceLostError         the database does not answer: retried
    │   ├── SnapshotGoneError       the snapshot of a chunk no longer exists: the copy is planned again
    │   ├── IncarnationError        the database is not the one that the position belongs to
    │   ├── StartRefusedError       capture cannot begin with whole transactions
    │   ├── MarkBrokenError         a record at or below the mark of its thread
    │   └── RowTooLargeError        a row does not fit a Kafka message
    └── MergeError                  the merger stops this source, which then holds back its group
        ├── LateError               above the last release of its thread, below that of its source
        ├── UnknownThreadError      a commit of a thread that is in no mark
        ├── MarkWentBackError       a mark below the previous one
        ├── CountMismatchError      too few or too many records
        ├── ChecksumMismatchError   the number of records is right, their content is not
        ├── DuplicateIdError        two transactions with the same id
        └── TransactionTooLargeError does not fit one Kafka transaction

`hint` tells the operator what to do: the command line prints it, the API returns it.
"""

from __future__ import annotations


class LowwaterError(Exception):
    """Base class. Its text is `what [source, thread, position] (hint)`."""

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
        """All parts by name, for logs, `/status` and problem details."""
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
    """The state of a table is unknown at the requested gsn."""
