"""The one list of kits: a new source kind adds its own here, and every promise is tested on it."""

from __future__ import annotations

from tests.conformance.kit import Kit
from tests.conformance.mongodb import MongoKit
from tests.conformance.mysql import MysqlKit
from tests.conformance.oracle import OracleKit
from tests.conformance.postgres import PostgresKit
from tests.conformance.simulated_rac import SimulatedRacKit
from tests.conformance.turso import TursoKit

from lowwater_devkit.servers.mysql_install import FLAVOURS

KITS: list[Kit] = [
    SimulatedRacKit(),
    PostgresKit(14),
    PostgresKit(18),
    OracleKit(),
    TursoKit(),
    *(MysqlKit(flavour) for flavour in FLAVOURS),
    MongoKit(),
]
