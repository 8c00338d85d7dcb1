"""The SYS tables of a small schema, as `SimulatedOracle` answers them."""

from __future__ import annotations

from tests.support.simulated_oracle import Rows, SimulatedOracle

from lowwater_extractor.sources.oracle import checks as c
from lowwater_extractor.sources.oracle.dictionary import query as q
from lowwater_extractor.sources.oracle.discovery import SQL_VERSION
from lowwater_extractor.sources.oracle.supplemental import SQL_SUPPLEMENTAL
from lowwater_extractor.sources.oracle.types import OracleType as T

HIDDEN_AND_GENERATED = 0x20 | 0x100
VIRTUAL = 0x10000 | 0x8 | HIDDEN_AND_GENERATED
UNUSED = 0x8000 | 0x20
GUARD = 1 << 39 | HIDDEN_AND_GENERATED

#: name, object, data object, kind
OBJECTS: Rows = [
    ("ACCOUNTS", 100, 100, 2), ("ACCOUNTS", 101, 111, 19), ("ACCOUNTS", 102, 112, 34),
    ("ENTRIES", 200, 200, 2), ("KEYLESS", 300, 300, 2), ("SCRATCH", 400, 400, 2), ("TREE", 500, 500, 2),
]  # fmt: skip
#: object, properties
TABLES: Rows = [(100, 0x20), (200, 0), (300, 0), (400, 0x400000), (500, 0x40)]
#: object, name, INTCOL#, SEGCOL#, type, length, precision, scale, null$, properties, form, COL#
COLUMNS: Rows = [
    (100, "ID", 1, 1, T.NUMBER, 22, 10, 0, 1, 0, 0, 1),
    (100, "GONE", 2, 2, T.VARCHAR2, 10, None, None, 0, UNUSED, 1, 0),
    (100, "NAME", 3, 3, T.VARCHAR2, 50, None, None, 0, 0, 1, 2),
    (100, "NATIVE", 4, 4, T.VARCHAR2, 50, None, None, 0, 0, 2, 3),
    (100, "UPPER_NAME", 5, 0, T.VARCHAR2, 50, None, None, 0, VIRTUAL, 1, 0),
    (100, "SYS_NC00006$", 6, 5, T.RAW, 126, None, None, 0, GUARD, 0, 0),
    (100, "ADDED", 7, 6, T.NUMBER, 22, None, None, 0, 0x40000000, 0, 4),
    (100, "QUIET", 8, 7, T.DATE, 7, None, None, 0, 0x20, 0, 0),
    (100, "LONG_TEXT", 9, 8, T.VARCHAR2, 32767, None, None, 0, 0x80, 1, 5),
    (100, "SECRET", 10, 9, T.VARCHAR2, 50, None, None, 0, 0x4000000, 1, 6),
    (100, "PACKED", 11, 10, T.CLOB, 4000, None, None, 0, 0, 1, 7),
    (200, "A", 1, 1, T.NUMBER, 22, 5, 0, 0, 0, 0, 1),
    (200, "B", 2, 2, T.NUMBER, 22, 5, 0, 1, 0, 0, 2),
    (200, "C", 3, 3, T.TIMESTAMP_LTZ, 11, None, 6, 1, 0, 0, 3),
    (300, "X", 1, 1, T.NUMBER, 22, None, None, 0, 0, 0, 1),
    (400, "X", 1, 1, T.NUMBER, 22, None, None, 0, 0, 0, 1),
    (500, "ID", 1, 1, T.NUMBER, 22, 10, 0, 1, 0, 0, 1),
]
DEFAULTS: Rows = [(100, 7, b"\xc1\x08", 2, 0)]
#: object, constraint, kind, name, enabled, defer, INTCOL#
CONSTRAINTS: Rows = [
    (100, 1, 2, "ACCOUNTS_PK", 1, 0, 1), (100, 2, 14, "LOG_PK", None, 0, None),
    # the first is deferrable, the second has a column that may be null
    (200, 3, 2, "ENTRIES_PK", 1, 1, 1), (200, 4, 3, "ENTRIES_U1", 1, 0, 1), (200, 5, 3, "ENTRIES_U2", 1, 0, 2),
    (200, 5, 3, "ENTRIES_U2", 1, 0, 3), (200, 6, 17, "LOG_ALL", None, 0, None), (200, 7, 12, "MY_GROUP", None, 0, 1),
    (500, 8, 2, "TREE_PK", 1, 0, 1),
]  # fmt: skip


def with_catalogue(database: SimulatedOracle) -> SimulatedOracle:
    database.answers |= {
        q.SQL_OWNERS: [("SYS", 0), ("BANK", 107)],
        q.SQL_CHARSETS: [("NLS_CHARACTERSET", "AL32UTF8"), ("NLS_NCHAR_CHARACTERSET", "AL16UTF16")],
        q.SQL_ZONE: [("+00:00",)],
        q.SQL_OBJECTS: OBJECTS,
        q.SQL_TABLES: TABLES,
        q.SQL_COLUMNS: COLUMNS,
        q.SQL_DEFAULTS: DEFAULTS,
        q.SQL_CONSTRAINTS: CONSTRAINTS,
        q.SQL_COMPRESSED: [("KEYLESS",)],
        q.SQL_UNLOGGED: [],
        q.SQL_HIDDEN_LOBS: [("ACCOUNTS", "PACKED", "NO", "MEDIUM", "NO")],
        SQL_VERSION: [("23.0.0.0.0",)],
        c.SQL_PRIVILEGES: [("CREATE SESSION",), ("LOGMINING",), ("SELECT ANY TRANSACTION",)],
        SQL_SUPPLEMENTAL: [("YES", "NO", "NO")],
    }
    return database
