"""Waits until all transactions up to a log position are visible to a reader. See `view.py` for the reason."""

from __future__ import annotations

import time

from lowwater.errors import SourceError, SourceLostError
from lowwater_extractor.sources.mysql.catalogue import DatabaseCatalogue
from lowwater_extractor.sources.mysql.config import MysqlConfig
from lowwater_extractor.sources.mysql.position import Place
from lowwater_extractor.sources.mysql.snapshot.chunks import Bounds
from lowwater_extractor.sources.mysql.wire.gtid import GtidSet

#: more than 0.1 s: INNODB_TRX is answered from a cache that InnoDB refreshes only if it was not read for that long.
#: More frequent queries would return the first result forever
_PAUSE_SECONDS = 0.15
#: transactions that have written nothing have ids above this
WRITERS = "SELECT trx_id FROM information_schema.INNODB_TRX WHERE trx_id < 281474976710656"
#: in MariaDB the snapshot is consistent with a binary log position
SNAPSHOT = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
#: required by WITH CONSISTENT SNAPSHOT
REPEATABLE = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
_SNAPSHOT_AT = "SHOW STATUS WHERE Variable_name IN ('Binlog_snapshot_file', 'Binlog_snapshot_position')"


def begin_when_visible(config: MysqlConfig, source: str, catalogue: DatabaseCatalogue, bounds: Bounds) -> None:
    """Start a transaction on the catalogue's connection that sees everything up to the bounds' position.

    Raises SourceLostError after `visible_seconds_max`.
    """
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
        _pause(source, deadline, f"the log position {bounds.file}:{bounds.position}")


def _wait_for_gtids(config: MysqlConfig, source: str, catalogue: DatabaseCatalogue, gtids: str) -> None:
    """Wait until gtid_executed contains the GTIDs: the server adds a GTID once the transaction is visible."""
    deadline = time.monotonic() + config.visible_seconds_max
    wanted = GtidSet.parse(gtids)
    while True:
        ((executed,),) = catalogue.ask("SELECT @@GLOBAL.gtid_executed")
        if wanted <= GtidSet.parse(executed):
            return
        _pause(source, deadline, "transactions that are in the log")


def _wait_for_writers(source: str, catalogue: DatabaseCatalogue, deadline: float) -> None:
    """Wait for all active write transactions: logged transactions that are not visible yet are among them."""
    left = {row[0] for row in catalogue.ask(WRITERS)}
    while left:
        _pause(source, deadline, f"{len(left)} transactions that were writing")
        left &= {row[0] for row in catalogue.ask(WRITERS)}


def _snapshot_place(catalogue: DatabaseCatalogue) -> Place:
    found = {name.lower(): value for name, value in catalogue.ask(_SNAPSHOT_AT)}
    if "binlog_snapshot_file" not in found:
        raise SourceError("the server does not report the log position of a snapshot", hint="is log_bin on?")
    return Place(found["binlog_snapshot_file"], int(found["binlog_snapshot_position"]))


def _pause(source: str, deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise SourceLostError(
            f"{what}: not visible yet", source=source,
            hint="a long transaction, or a replica that does not answer, delays them; it is tried again",
        )  # fmt: skip
    time.sleep(_PAUSE_SECONDS)
