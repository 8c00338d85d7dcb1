"""SQL over one version of a lake. Only the tables in the query are read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb

from lowwater.errors import LakeError
from lowwater.lake.read.scans import asking, connect
from lowwater.lake.reader import Version

_CHANGES = "_changes"
#: read-only statements: others could write to the lake's directory
_ALLOWED = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}

Rows = tuple[list[str], list[dict[str, Any]]]


@contextmanager
def _in_our_words(at: Version, hint: str) -> Iterator[None]:
    try:
        with asking(at.lake.store):
            yield
    except duckdb.Error as error:
        raise LakeError(str(error), hint=hint) from error


def _fetch(relation: duckdb.DuckDBPyRelation, limit: int) -> Rows:
    found = relation.limit(limit).to_arrow_table()
    return list(found.schema.names), list(found.to_pylist())


def state_rows(at: Version, table: str, where: str | None, limit: int, *, allow_stale: bool = False) -> Rows:
    found = at.state(table, allow_stale=allow_stale)
    with connect() as con, _in_our_words(at, f"--where is SQL over {', '.join(found.schema.names)}"):
        relation = found.duckdb(con)
        return _fetch(relation if where is None else relation.filter(where), limit)


def _mentioned(con: duckdb.DuckDBPyConnection, at: Version, query: str) -> set[str]:
    statements = con.extract_statements(query)
    if len(statements) != 1 or statements[0].type not in _ALLOWED:
        raise LakeError("only one SELECT is allowed", hint='for example "SELECT count(*) FROM accounts"')
    try:
        return set(con.get_table_names(query))
    except duckdb.BinderException:
        # the query needs columns of views that do not exist yet, as with `JOIN … USING`: match names in its text
        words = {word.lower() for word in re.findall(r'"[^"]+"|\w+', query)}
        full = at.lake.names()
        known = {*full, *(name.rpartition(".")[2] for name in full)}
        views = {*known, *(f"{name}{_CHANGES}" for name in known)}
        return {name for name in views if name.lower() in words or f'"{name}"'.lower() in words}


def _add_view(con: duckdb.DuckDBPyConnection, at: Version, name: str, allow_stale: bool) -> None:
    """Create a view of the state, or of the changes for `<table>_changes`. Unknown names are left to DuckDB."""
    if at.lake.find(name):
        at.state(name, allow_stale=allow_stale).duckdb(con).create_view(name)
    elif name.lower().endswith(_CHANGES) and at.lake.find(name[: -len(_CHANGES)]):
        after = at.lake.chain.head.history_from
        at.changes(name[: -len(_CHANGES)], after).duckdb(con).create_view(name)


def ask(at: Version, query: str, limit: int, *, allow_stale: bool = False) -> Rows:
    """Run a query. Raises StaleTableError if it reads a stale table, unless `allow_stale`."""
    hint = '`lowwater lake tables` lists the tables; names with dots are quoted, as in "source.namespace.table"'
    with connect() as con, _in_our_words(at, hint):
        # keeps the order of the query
        con.execute("SET preserve_insertion_order = true")
        for name in sorted(_mentioned(con, at, query)):
            _add_view(con, at, name, allow_stale)
        return _fetch(con.sql(query), limit)
