"""A reader waits until it can see all that a place in the log covers. See `view.py` for why."""

from __future__ import annotations

import time

from lowwater.errors import SourceError, SourceLostError
from lowwater_extractor.sources.mysql.catalogue import DatabaseCatalogue
from lowwater_extractor.sources.mysql.config import MysqlConfig
from lowwater_extractor.sources.mysql.position import Place
from lowwater_extractor.sources.mysql.snapshot.chunks import Bounds
from lowwater_extractor.sources.mysql.wire.gtid import GtidSet

#: more than a tenth of a second: InnoDB shows who writes from a cache that it makes anew only once nobody has looked
#: at it for so long, so whoever asks more often sees the first answer for ever
_PAUSE_SECONDS = 0.15
#: numbers of transactions that have written nothing are above this
WRITERS = "SELECT trx_id FROM information_schema.INNODB_TRX WHERE trx_id < 281474976710656"
#: a transaction of MariaDB that sees the server's state at this place of its log, and nothing above it
SNAPSHOT = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
#: without it a snapshot is none
REPEATABLE = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
_SNAPSHOT_AT = "SHOW STATUS WHERE Variable_name IN ('Binlog_snapshot_file', 'Binlog_snapshot_position')"


def begin_when_visible(config: MysqlConfig, source: str, catalogue: DatabaseCatalogue, bounds: Bounds) -> None:
    """Leaves the catalogue's connection in a transaction that sees everything up to the bounds' place."""
    catalogue.ask(REPEATABLE)
    deadline = time.monotonic() + config.visible_seconds_max
    if not catalogue.server.is_mariadb:
        if bounds.gtids is not None:
            _wait_for_gtids(config, source, catalogue, bounds.gtids)
        elif bounds.file:
            _wait_for_writers(source, catalogue, deadline)
        catalogue.ask(SNAPSHOT)
        return
    while True:
        catalogue.ask(SNAPSHOT)
        if not bounds.file or _snapshot_place(catalogue).order >= Place(bounds.file, bounds.position).order:
            return
        catalogue.ask("ROLLBACK")
        _pause(source, deadline, f"the log's place {bounds.file}:{bounds.position}")


def _wait_for_gtids(config: MysqlConfig, source: str, catalogue: DatabaseCatalogue, gtids: str) -> None:
    """A server counts a transaction as executed once others can see it."""
    deadline = time.monotonic() + config.visible_seconds_max
    wanted = GtidSet.parse(gtids)
    while True:
        ((executed,),) = catalogue.ask("SELECT @@GLOBAL.gtid_executed")
        if wanted <= GtidSet.parse(executed):
            return
        _pause(source, deadline, "transactions that are in the log")


def _wait_for_writers(source: str, catalogue: DatabaseCatalogue, deadline: float) -> None:
    """Whoever is in the log and cannot be seen yet is among those that are writing now: they are waited for."""
    left = {row[0] for row in catalogue.ask(WRITERS)}
    while left:
        _pause(source, deadline, f"{len(left)} transactions that were writing")
        left &= {row[0] for row in catalogue.ask(WRITERS)}


def _snapshot_place(catalogue: DatabaseCatalogue) -> Place:
    found = {name.lower(): value for name, value in catalogue.ask(_SNAPSHOT_AT)}
    if "binlog_snapshot_file" not in found:
        raise SourceError("the server does not say where in its log a snapshot is", hint="is log_bin on?")
    return Place(found["binlog_snapshot_file"], int(found["binlog_snapshot_position"]))


def _pause(source: str, deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise SourceLostError(
            f"{what}: not visible yet", source=source,
            hint="a long transaction, or a replica that does not answer, holds them back; it is tried again",
        )  # fmt: skip
    time.sleep(_PAUSE_SECONDS)
