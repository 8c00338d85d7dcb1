"""Checks of the requirements for capture, each with the statements that fix a failure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from lowwater.errors import LowwaterError, SourceLostError
from lowwater_extractor.api import Check
from lowwater_extractor.sources.oracle.charsets import codec_of
from lowwater_extractor.sources.oracle.config import OracleConfig
from lowwater_extractor.sources.oracle.connect import Database, connect, quoted
from lowwater_extractor.sources.oracle.dictionary.dictionary import TableVersion, refuse_unsupported
from lowwater_extractor.sources.oracle.dictionary.query import SYS_TABLES, SqlDictionary
from lowwater_extractor.sources.oracle.discovery import SQL_VERSION, Discovery, Identity
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.supplemental import SQL_FORCE_LOGGING, SQL_SUPPLEMENTAL, names_rows
from lowwater_extractor.sources.oracle.types import OracleType

VERSION_MIN, VERSION_MAX = (12, 1), (23, 99)

#: a container's name → a session in that container; an empty name: in the root
Connect = Callable[[str], Database]

#: views that are queried, by the names under which they are granted
VIEWS = (
    "V_$DATABASE", "V_$DATABASE_INCARNATION", "V_$TRANSPORTABLE_PLATFORM", "V_$THREAD", "V_$LOG", "V_$LOGFILE",
    "V_$ARCHIVED_LOG", "V_$LOG_HISTORY", "GV_$INSTANCE", "GV_$TRANSACTION", "V_$PDBS",
    "GV_$FAST_START_TRANSACTIONS", "CDB_2PC_PENDING",
)  # fmt: skip
#: needed for a PDB, from this version on
PDB_VIEWS, PDB_VIEWS_FROM = ("V_$PDB_INCARNATION",), (12, 2)
LOGMINER_VIEWS = ("V_$LOGMNR_CONTENTS",)
DICTIONARY_VIEWS = ("DBA_USERS", "DBA_TABLES", "DBA_TAB_PARTITIONS", "DBA_TAB_SUBPARTITIONS", "DBA_LOBS")
COPY_VIEWS = ("DBA_EXTENTS", "DBA_OBJECTS")

SQL_PRIVILEGES = "SELECT PRIVILEGE FROM SESSION_PRIVS"
SQL_PROBE = "SELECT 1 FROM {} WHERE ROWNUM < 1"
SQL_PROBE_AS_OF = "SELECT 1 FROM {} AS OF SCN :scn WHERE ROWNUM < 1"
SQL_PACKAGE = "BEGIN DBMS_LOGMNR.END_LOGMNR; EXCEPTION WHEN OTHERS THEN IF SQLCODE <> -1307 THEN RAISE; END IF; END;"

_MINIMAL = "ALTER DATABASE ADD SUPPLEMENTAL LOG DATA;"
_ARCHIVELOG = "SHUTDOWN IMMEDIATE; STARTUP MOUNT; ALTER DATABASE ARCHIVELOG; ALTER DATABASE OPEN;"


def check_source(config: OracleConfig, source: str, connect_to: Connect | None = None) -> list[Check]:
    """Run all checks. A check that fails does not prevent the following ones."""
    if not config.has_database:
        return list(_directories(config))
    open_session = connect_to or (lambda container: connect(config, source, container=container))
    try:
        root = open_session("")
    except LowwaterError as error:
        return [Check("connection", False, error.what, error.hint or "")]
    try:
        return list(Checks(config, source, root, open_session).all())
    finally:
        root.close()


class Checks:
    def __init__(self, config: OracleConfig, source: str, root: Database, open_session: Connect) -> None:
        self._config = config
        self._source = source
        self._root = root
        self._open = open_session
        self._everywhere = " CONTAINER=ALL" if config.pdb else ""

    def all(self) -> Iterator[Check]:
        config = self._config
        where = config.dsn or f"{config.host}:{config.port}/{config.service}"
        yield Check("connection", True, f"{where} as {config.user}")
        yield from self._guarded("version", self._version)
        yield from self._guarded("views", self._views)
        yield from self._guarded("database", self._database)
        yield from self._guarded("supplemental", self._supplemental)
        if config.capture == "logminer":
            yield from self._guarded("logminer", self._logminer)
        else:
            yield from _directories(config)
        yield from self._guarded("container", self._container)

    def _guarded(self, name: str, checks: Callable[[], Iterator[Check]]) -> Iterator[Check]:
        try:
            yield from checks()
        except LowwaterError as error:
            yield Check(name, False, error.what, error.hint or "")

    def _version(self) -> Iterator[Check]:
        text, number = self._asked_version()
        is_known = VERSION_MIN <= number <= VERSION_MAX
        yield Check("version", is_known, text, "lowwater supports Oracle 12.1 to 23")

    def _asked_version(self) -> tuple[str, tuple[int, int]]:
        ((text,),) = self._root.ask(SQL_VERSION)
        major, minor, *_ = (*map(int, str(text).split(".")[:2]), 0)
        return str(text), (major, minor)

    def _views(self) -> Iterator[Check]:
        views = VIEWS + (LOGMINER_VIEWS if self._config.capture == "logminer" else ())
        if self._config.pdb and self._asked_version()[1] >= PDB_VIEWS_FROM:
            views += PDB_VIEWS
        denied = [view for view in views if not self._may(SQL_PROBE.format(_public(view)))]
        fix = " ".join(f"GRANT SELECT ON SYS.{view} TO {self._config.user}{self._everywhere};" for view in denied)
        yield Check("views", not denied, f"denied: {', '.join(denied)}" if denied else f"{len(views)} can be read", fix)

    def _database(self) -> Iterator[Check]:
        identity = Discovery(self._root, self._config, self._source).identity()
        mode = "ARCHIVELOG" if identity.is_archiving else "NOARCHIVELOG"
        yield Check("archivelog", identity.is_archiving, mode, _ARCHIVELOG)
        is_primary = identity.role == "PRIMARY" and identity.open_mode.startswith("READ WRITE")
        yield Check(
            "role", is_primary, f"{identity.role}, {identity.open_mode}", "connect to the primary, opened READ WRITE"
        )
        yield self._named_pdb(identity)
        threads = Discovery(self._root, self._config, self._source).look().threads
        shown = ", ".join(f"{thread.number} {thread.state}" for thread in threads.values() if thread.is_enabled)
        yield Check("threads", True, shown)

    def _named_pdb(self, identity: Identity) -> Check:
        pdb = self._config.pdb
        if identity.is_container and not pdb:
            return Check("pdb", False, "a container database", "name the container that is captured: `pdb: …`")
        if not identity.is_container and pdb:
            return Check("pdb", False, "not a container database", "leave `pdb` out")
        return Check("pdb", True, pdb or "not a container database")

    def _supplemental(self) -> Iterator[Check]:
        ((minimal, key, every),) = self._root.ask(SQL_SUPPLEMENTAL)
        is_there = minimal in ("YES", "IMPLICIT")
        what = f"minimal {minimal}, primary key {key}, all {every}"
        yield Check("supplemental", is_there, what, _MINIMAL)

    def _logminer(self) -> Iterator[Check]:
        user, everywhere = self._config.user, self._everywhere
        held = {privilege for (privilege,) in self._root.ask(SQL_PRIVILEGES)}
        lacks = [name for name in ("LOGMINING", "SELECT ANY TRANSACTION") if name not in held]
        fix = " ".join(f"GRANT {name} TO {user}{everywhere};" for name in lacks)
        yield Check("logmining", not lacks, f"lacks {', '.join(lacks)}" if lacks else "may mine", fix)
        is_good, why = self._runs(SQL_PACKAGE)
        fix = f"GRANT EXECUTE ON SYS.DBMS_LOGMNR TO {user}{everywhere};"
        yield Check("dbms_logmnr", is_good, why or "may be executed", fix)

    def _container(self) -> Iterator[Check]:
        if self._config.dictionary != "sql":
            return
        session = self._open(self._config.pdb)
        try:
            yield from self._grants(session)
            yield from self._tables(session)
        finally:
            session.close()

    def _grants(self, session: Database) -> Iterator[Check]:
        user = self._config.user
        scn = Discovery(self._root, self._config, self._source).current_scn()
        denied = [t for t in SYS_TABLES if not self._may(SQL_PROBE_AS_OF.format(f"SYS.{t}"), session, scn=scn)]
        fix = " ".join(f"GRANT SELECT, FLASHBACK ON SYS.{table} TO {user};" for table in denied)
        what = f"denied: {', '.join(denied)}" if denied else "can be read as of an SCN"
        yield Check("dictionary", not denied, what, _inside(self._config, fix))
        views = DICTIONARY_VIEWS + (COPY_VIEWS if self._config.copy_tables else ())
        hidden = [view for view in views if not self._may(SQL_PROBE.format(view), session)]
        fix = " ".join(f"GRANT SELECT ON SYS.{view} TO {user};" for view in hidden)
        what = f"denied: {', '.join(hidden)}" if hidden else f"{len(views)} can be read"
        yield Check("dictionary views", not hidden, what, _inside(self._config, fix))

    def _tables(self, session: Database) -> Iterator[Check]:
        container = Discovery(self._root, self._config, self._source).container()
        dictionary = SqlDictionary(session, self._config, self._source, container)
        environment = dictionary.environment
        yield _charsets(environment.charset, environment.national_charset)
        scn = Discovery(self._root, self._config, self._source).current_scn()
        tables = dictionary.read(scn)
        yield self._all_there(tables)
        yield self._keys(tables)
        ((_, key, every),) = self._root.ask(SQL_SUPPLEMENTAL)
        yield self._log_groups(tables, key == "YES", every == "YES")
        yield self._readable(tables)
        yield self._logged(tables)
        yield self._local_times(tables, environment.zone)
        if self._config.copy_tables:
            yield self._copies(session, tables, scn)

    def _all_there(self, tables: list[TableVersion]) -> Check:
        names = {table.full_name for table in tables}
        owners = {table.owner for table in tables}
        missing = [
            wanted
            for wanted in self._config.tables
            if wanted not in names and not (wanted.endswith(".*") and wanted[:-2] in owners)
        ]
        what = f"not there: {', '.join(missing)}" if missing else f"{len(tables)} tables"
        return Check("tables", not missing, what, "`tables` are spelled as the dictionary has them, in the right PDB")

    def _keys(self, tables: list[TableVersion]) -> Check:
        keyless = [table for table in tables if not table.key]
        is_good = not keyless or self._config.without_key == "row_images"
        fix = " ".join(f"ALTER TABLE {_sql_name(table)} ADD PRIMARY KEY (…);" for table in keyless)
        what = f"without a key: {_names(keyless)}" if keyless else "all have a key"
        return Check("keys", is_good, what, f"{fix} Or set without_key: row_images" if keyless else "")

    def _log_groups(self, tables: list[TableVersion], key: bool, every: bool) -> Check:
        """The log must identify the row of an update: by its key, or by all columns if the table has no key."""
        lacking = [table for table in tables if not names_rows(table, key=key, every=every)]
        fix = " ".join(f"{table.log_statement()};" for table in lacking)
        what = f"lacking: {_names(lacking)}" if lacking else "every table's key is in the log"
        return Check("table supplemental", not lacking, what, _inside(self._config, fix))

    def _readable(self, tables: list[TableVersion]) -> Check:
        if self._config.capture == "logminer":
            return Check("storage", True, "LogMiner reads it")
        refused = []
        for table in tables:
            try:
                refuse_unsupported(table)
            except LowwaterError as error:
                refused.append(error.what)
        fix = "take them out of `tables`, or capture them by LogMiner in a source of their own"
        return Check("storage", not refused, "; ".join(refused) or "all are heap tables", fix)

    def _logged(self, tables: list[TableVersion]) -> Check:
        """LogMiner does not show rows that were loaded without logging."""
        unlogged = [table for table in tables if table.is_unlogged] if self._config.capture == "logminer" else []
        if unlogged:
            ((forced,),) = self._root.ask(SQL_FORCE_LOGGING)
            unlogged = [] if forced == "YES" else unlogged
        fix = " ".join(f"ALTER TABLE {_sql_name(table)} LOGGING;" for table in unlogged)
        what = f"NOLOGGING: {_names(unlogged)}" if unlogged else "loads are in the log"
        return Check("logging", not unlogged, what, f"{fix} Or ALTER DATABASE FORCE LOGGING;" if unlogged else "")

    def _local_times(self, tables: list[TableVersion], zone: str) -> Check:
        """LogMiner shows a TIMESTAMP WITH LOCAL TIME ZONE in the database's zone without naming it: it must be UTC."""
        local = [t for t in tables if any(c.type == OracleType.TIMESTAMP_LTZ for c in t.columns)]
        is_utc = zone in ("+00:00", "UTC", "GMT", "Etc/UTC")
        is_good = is_utc or not local or self._config.capture == "redo"
        fix = "capture by redo files, or drop those columns (columns.drop)"
        return Check("local timestamps", is_good, f"{len(local)} tables, DBTIMEZONE {zone}", fix)

    def _copies(self, session: Database, tables: list[TableVersion], scn: Scn) -> Check:
        denied = [t for t in tables if not self._may(SQL_PROBE_AS_OF.format(_sql_name(t)), session, scn=scn)]
        fix = " ".join(f"GRANT SELECT, FLASHBACK ON {_sql_name(table)} TO {self._config.user};" for table in denied)
        what = f"denied: {_names(denied)}" if denied else "can be read as of an SCN"
        return Check("copies", not denied, what, _inside(self._config, fix))

    # --- queries

    def _may(self, sql: str, session: Database | None = None, **binds: object) -> bool:
        try:
            (session or self._root).ask(sql, **binds)
        except SourceLostError:
            raise
        except LowwaterError:
            return False
        return True

    def _runs(self, sql: str) -> tuple[bool, str]:
        try:
            self._root.run(sql)
        except SourceLostError:
            raise
        except LowwaterError as error:
            return False, error.what
        return True, ""


def _charsets(charset: str, national: str) -> Check:
    unknown = []
    for name in (charset, national):
        try:
            codec_of(name)
        except LowwaterError as error:
            unknown.append(error.what)
    what = "; ".join(unknown) or f"{charset}, national {national}"
    return Check("character sets", not unknown, what, "capture by LogMiner, and report the name")


def _directories(config: OracleConfig) -> Iterator[Check]:
    for name, paths in (("online", config.redo.online), ("archive", config.redo.archive)):
        missing = [str(path) for path in paths if not path.is_dir()]
        if paths:
            what = f"not there: {', '.join(missing)}" if missing else f"{len(paths)} directories"
            yield Check(f"redo.{name}", not missing, what, "mount the server's directories, and name them here")
    for begin, path in config.redo.paths.items():
        yield Check("redo.paths", path.is_dir(), f"{begin} → {path}", "mount the server's directory there")


def _public(view: str) -> str:
    """The name for queries of a view's name for grants: V$LOG for V_$LOG."""
    return view.replace("V_$", "V$")


def _sql_name(table: TableVersion) -> str:
    return f"{quoted(table.owner)}.{quoted(table.table)}"


def _names(tables: Iterable[TableVersion], shown: int = 10) -> str:
    names = [table.full_name for table in tables]
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def _inside(config: OracleConfig, statements: str) -> str:
    if not statements or not config.pdb:
        return statements
    return f"ALTER SESSION SET CONTAINER = {quoted(config.pdb)}; {statements}"
