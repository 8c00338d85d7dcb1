"""`lowwater lake`: commands for a lake. All but `compact` only read it.

With `--json` each command prints one document; decimals, times and bytes (in hex) are strings in it:

    tables   [{table, version, versions, rows, files, bytes, gsn, stale: {gsn, reason} or null}]
    log      [{n, kind, at, from_gsn, gsn, transactions, rows, files, tables, removed, skipped: [{gsn, source, thread,
             txid, reason}], copied: [{gsn, source, copy_id, tables}], stale: [{gsn, source, tables, reason}]}], the
             newest first
    show     {table, stale, key, columns: [{name, type}], versions: [{version, key, columns}], files: [{path, layer,
             version, rows, bytes, gsn_min, gsn_max}]}; with --changes {table, after_gsn, to_gsn,
             rows: [{column: value}]}
    state    {table, gsn, rows: [{column: value}]}
    compact  {files_before, files_after, bytes_before, bytes_after, swept_files, swept_bytes, manifests}
    sql      {gsn, rows: [{column: value}]}
    verify   {damaged, found: [{what, path, manifest, hint, rubbish}]}
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lowwater.errors import ConfigError, LakeError
from lowwater.runtime.config import LakeConfig
from lowwater.runtime.plugins import MAINTENANCE, load_plugin, plugins
from lowwater.runtime.times import now_us
from lowwater_fleet.cli.console import err, out, progress
from lowwater_fleet.cli.contract import AsJson, ConfigOption, load
from lowwater_fleet.cli.lake_print import instant, print_json, print_rows

if TYPE_CHECKING:
    from lowwater.lake.chain.manifest import Manifest
    from lowwater.lake.read.stale import StaleSince
    from lowwater.lake.reader import Lake
    from lowwater.lake.schema.columns import LakeTable

app = typer.Typer(help="The lake: tables, landings, state and changes, SQL over one version.", no_args_is_help=True)

LakeOption = Annotated[str | None, typer.Option("--lake", help="a directory or URI; default: that of the config")]
GroupOption = Annotated[
    str | None, typer.Option("--group", "-g", help="the group of the lake, if the config has several")
]
AsOfOption = Annotated[str | None, typer.Option("--as-of", help="a gsn, or a time: 2026-03-01T12:00:00Z")]
StaleOption = Annotated[
    bool, typer.Option("--allow-stale", help="also read stale tables, whose state may be incomplete")
]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=0, help="maximum number of rows to print")]


def _config(uri: str | None, config_file: Path | None, group: str | None) -> LakeConfig:
    if uri is not None:
        return LakeConfig(uri=uri)
    settings = load(config_file)
    lakes = {name: found.lake for name, found in settings.groups.items() if found.lake is not None}
    if group is not None:
        settings.group(group)
        lakes = {name: lake for name, lake in lakes.items() if name == group}
    if not lakes:
        raise ConfigError("the config has no lake", hint="set --lake, or `lake: {uri: …}` of a group in the config")
    if len(lakes) > 1:
        raise ConfigError(f"several groups have a lake: {', '.join(sorted(lakes))}", hint="choose one with --group")
    return next(iter(lakes.values()))


def _open(uri: str | None, config_file: Path | None, group: str | None) -> Lake:
    # imported here because pyarrow and duckdb load slowly, and other commands do not need them
    from lowwater.lake.reader import Lake

    return Lake.open(_config(uri, config_file, group))


@app.command()
def tables(
    lake: LakeOption = None, config_file: ConfigOption = None, group: GroupOption = None, as_json: AsJson = False
) -> None:
    """List all tables with the rows, files and bytes that are current."""
    found = _open(lake, config_file, group).tables()
    rows = [{"table": info.name, **{k: v for k, v in asdict(info).items() if k != "name"}} for info in found]
    if as_json:
        print_json(rows)
        return
    shown = [{**row, "stale": _since(info.stale)} for row, info in zip(rows, found, strict=True)]
    print_rows(["table", "version", "rows", "files", "bytes", "gsn", "stale"], shown)


def _since(stale: StaleSince | None) -> str:
    return "" if stale is None else f"since gsn {stale.gsn}: {stale.reason}"


def _landing(manifest: Manifest) -> dict[str, Any]:
    return {
        "n": manifest.n,
        "kind": manifest.kind.value,
        "at": instant(manifest.at_us),
        "from_gsn": manifest.from_gsn,
        "gsn": manifest.gsn,
        "transactions": manifest.transactions,
        "rows": sum(file.rows for file in manifest.files),
        "files": len(manifest.files),
        "tables": sorted({file.table for file in manifest.files}),
        "removed": len(manifest.removed),
        "skipped": [skipped.model_dump() for skipped in manifest.skipped],
        "copied": [copied.model_dump(exclude={"lows"}) for copied in manifest.copied],
        "stale": [stale.model_dump() for stale in manifest.stale],
    }


@app.command()
def log(
    limit: LimitOption = 20,
    start: Annotated[int | None, typer.Option("--from", help="list this manifest and older ones")] = None,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
    group: GroupOption = None,
    as_json: AsJson = False,
) -> None:
    """List the landings, newest first."""
    chain = _open(lake, config_file, group).chain
    last = chain.head.n if start is None else min(start, chain.head.n)
    rows = [_landing(manifest) for manifest in chain.log(max(1, last - limit + 1), last)][::-1] if limit else []
    if as_json:
        print_json(rows)
        return
    names = ["n", "kind", "at", "gsn", "transactions", "rows", "files", "tables"]
    shown = [{**row, "gsn": _gsn_range(row), "tables": ", ".join(row["tables"])} for row in rows]
    print_rows(names, shown)
    for row in rows:
        for skipped in row["skipped"]:
            what = "skipped: gsn {gsn}, {source}/{thread}/{txid}: {reason}".format(**skipped)
            out.print(what, style="yellow", markup=False)
        for stale in row["stale"]:
            what = f"stale: gsn {stale['gsn']}, {', '.join(stale['tables'])}: {stale['reason']}"
            out.print(what, style="yellow", markup=False)
    if rows and rows[-1]["n"] > 1:
        err.print(f"older: --from {rows[-1]['n'] - 1}", style="dim")


def _gsn_range(row: dict[str, Any]) -> str:
    return (
        f"{row['from_gsn'] + 1}..{row['gsn']}" if (row["from_gsn"] or 0) < row["gsn"] and row["kind"] == "land" else ""
    )


def _columns(table: LakeTable) -> list[dict[str, str]]:
    return [{"name": column.name, "type": str(column.field.type)} for column in table.columns]


@app.command()
def show(
    table: str,
    changes: Annotated[bool, typer.Option("--changes", help="print its changes")] = False,
    after: Annotated[int, typer.Option("--after", help="changes above this gsn")] = 0,
    to: Annotated[int | None, typer.Option("--to", help="changes up to this gsn")] = None,
    limit: LimitOption = 100,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
    group: GroupOption = None,
    as_json: AsJson = False,
) -> None:
    """Show one table: key, columns, versions and files, or its changes."""
    opened = _open(lake, config_file, group)
    if changes:
        _show_changes(opened, table, after, to, limit, as_json)
        return
    from lowwater.lake.chain.manifest import Layer
    from lowwater.lake.read.stale import stale_at
    from lowwater.lake.read.state_plan import all_files, union_for

    name, versions, known = opened.name(table), opened.versions(table), opened.chain.versions
    files = all_files(opened.chain, name, *Layer)
    union = union_for(opened.chain, name, files, opened.gsn)
    stale = stale_at(opened.chain, name, opened.gsn)
    data: dict[str, Any] = {
        "table": name,
        "stale": None if stale is None else asdict(stale),
        "key": versions[-1].key,
        "columns": [{"name": field.name, "type": str(field.type)} for field in union.row_schema],
        "versions": [{"version": v.version, "key": v.key, "columns": _columns(v)} for v in versions],
        "files": [
            {
                "path": file.path,
                "layer": file.layer.value,
                "version": known[file.schema_id].version,
                "rows": file.rows,
                "bytes": file.bytes,
                "gsn_min": file.gsn_min,
                "gsn_max": file.gsn_max,
            }
            for file in files
        ],
    }
    if as_json:
        print_json(data)
        return
    key = ", ".join(versions[-1].key) or "none"
    numbers = ", ".join(str(version.version) for version in versions)
    out.print(f"{name}  key: {key}  versions: {numbers}", markup=False)
    if stale is not None:
        out.print(f"stale {_since(stale)}", style="yellow", markup=False)
    print_rows(["name", "type"], data["columns"])
    newest = data["files"][::-1][:limit]
    print_rows(["path", "layer", "version", "rows", "bytes", "gsn_min", "gsn_max"], newest)
    if len(files) > len(newest):
        err.print(f"{len(files) - len(newest)} more files: --limit", style="dim")


def _show_changes(lake: Lake, table: str, after: int, to: int | None, limit: int, as_json: bool) -> None:
    found = lake.changes(table, after, to)
    rows: list[dict[str, Any]] = []
    with found.batches() as reader:
        while len(rows) < limit:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                break
            rows += batch.slice(0, limit - len(rows)).to_pylist()
    if as_json:
        data = {"table": lake.name(table), "after_gsn": found.after_gsn, "to_gsn": found.to_gsn, "rows": rows}
        print_json(data)
        return
    hidden = {"_txid", "_thread", "_order", "_ts", "_before"}
    print_rows([name for name in found.schema.names if name not in hidden], rows)


@app.command()
def state(
    table: str,
    as_of: AsOfOption = None,
    where: Annotated[str | None, typer.Option("--where", help="a condition in SQL")] = None,
    limit: LimitOption = 100,
    allow_stale: StaleOption = False,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
    group: GroupOption = None,
    as_json: AsJson = False,
) -> None:
    """Print a table's rows, now or as of an earlier version."""
    from lowwater_fleet.cli.lake_sql import state_rows

    opened = _open(lake, config_file, group)
    at = opened.at(as_of)
    names, rows = state_rows(at, table, where, limit, allow_stale=allow_stale)
    if as_json:
        print_json({"table": opened.name(table), "gsn": at.gsn, "rows": rows})
        return
    print_rows(names, rows)
    err.print(f"at gsn {at.gsn}", style="dim")


@app.command()
def sql(
    query: str,
    as_of: AsOfOption = None,
    limit: LimitOption = 1000,
    allow_stale: StaleOption = False,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
    group: GroupOption = None,
    as_json: AsJson = False,
) -> None:
    """Run DuckDB SQL on one version: tables `accounts` (or "source.namespace.accounts") and `accounts_changes`."""
    from lowwater_fleet.cli.lake_sql import ask

    at = _open(lake, config_file, group).at(as_of)
    names, rows = ask(at, query, limit, allow_stale=allow_stale)
    if as_json:
        print_json({"gsn": at.gsn, "rows": rows})
        return
    print_rows(names, rows)
    err.print(f"at gsn {at.gsn}", style="dim")


@app.command()
def compact(
    lake: LakeOption = None, config_file: ConfigOption = None, group: GroupOption = None, as_json: AsJson = False
) -> None:
    """Merge small files, fold changes older than the retention, and delete unreferenced files. Landing may run."""
    if "compact" not in plugins(MAINTENANCE):
        raise ConfigError("compaction is not installed here", hint="pip install lowwater-spark")
    maintain = load_plugin(MAINTENANCE, "compact")
    from lowwater.lake.chain.chain import Chain
    from lowwater.lake.store.base import open_lake_store

    settings = _config(lake, config_file, group)
    with progress() as say:
        say(f"compacting {settings.uri}")
        done = maintain(None, Chain.open(open_lake_store(settings)), settings, now_us())
    if as_json:
        print_json(asdict(done))
        return
    out.print(
        f"{done.files_before} files → {done.files_after}, {done.bytes_before:,} bytes → {done.bytes_after:,}; "
        f"{done.swept_files} old files removed"
    )


@app.command()
def verify(
    quick: Annotated[bool, typer.Option("--quick", help="do not read the files for their hashes")] = False,
    lake: LakeOption = None,
    config_file: ConfigOption = None,
    group: GroupOption = None,
    as_json: AsJson = False,
) -> None:
    """Check every manifest and file, and list all errors. The exit code is 1 if there is damage."""
    from lowwater.lake.chain.manifest import LEDGER
    from lowwater.lake.read.verify import verify as look
    from lowwater.lake.store.base import open_lake_store

    store = open_lake_store(_config(lake, config_file, group))
    if not any(store.list(LEDGER)):
        raise LakeError(f"there is no lake at {store.uri}", hint="nothing has landed yet, or the URI is wrong")
    with progress() as say:
        # in steps of 10 %: without a terminal each message is a line
        found = list(
            look(
                store, deep=not quick, progress=lambda what, done, of: say(f"{what}: {10 * done // of * 10} % of {of}")
            )
        )
    damage = [one for one in found if not one.rubbish]
    if as_json:
        print_json({"damaged": bool(damage), "found": [asdict(one) for one in found]})
    else:
        for one in found:
            out.print(one.what, style="yellow" if one.rubbish else "red", markup=False)
            out.print(f"  → {one.hint}", markup=False)
        if not damage:
            out.print("no damage found")
    if damage:
        raise typer.Exit(1)
