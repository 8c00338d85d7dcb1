"""The one list of kits: a new source kind adds its own here, and every promise is tested on it."""

from __future__ import annotations

from tests.conformance.kit import Kit
from tests.conformance.mongodb import MongoKit
from tests.conformance.mysql import MysqlKit
from tests.conformance.oracle import OracleKit
from tests.conformance.postgres import PostgresKit
from tests.conformance.simulated_rac import SimulatedRacKit
from tests.conformance.turso import TursoKit

KITS: list[Kit] = [
    SimulatedRacKit(),
    PostgresKit(),
    OracleKit(),
    TursoKit(),
    MysqlKit("mysql"),
    MysqlKit("mariadb"),
    MongoKit(),
]
