"""LogMiner's SQL, read back: by hand for each form that is known, and from text that is made at random."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowwater.errors import LogUnknownError
from lowwater_extractor.sources.oracle.logminer.literals import converter
from lowwater_extractor.sources.oracle.logminer.sql_redo import Call, Literal, Named, parse, parse_locator
from lowwater_extractor.sources.oracle.types import OracleColumn, OracleType

ROW_ID = "AAARwWAAYAAAAAOAAA"


def test_an_insert() -> None:
    found = parse('insert into "BANK"."ACCOUNTS"("ID","NAME","NOTE") values (\'1\',\'O\'\'Brien, "Bob" (x)\',NULL);')
    assert (found.op, found.owner, found.table) == ("c", "BANK", "ACCOUNTS")
    assert found.values == {"ID": "1", "NAME": 'O\'Brien, "Bob" (x)', "NOTE": None}
    assert found.where == {}


def test_an_update() -> None:
    found = parse(
        'update "BANK"."ACCOUNTS" set "NAME" = \'a and b\', "NOTE" = NULL '
        f"where \"ID\" = '1' and \"NAME\" IS NULL and \"X\" = 'set' and ROWID = '{ROW_ID}'"
    )
    assert found.values == {"NAME": "a and b", "NOTE": None}
    assert found.where == {"ID": "1", "NAME": None, "X": "set"}
    assert found.row_id == ROW_ID


def test_a_delete() -> None:
    found = parse('delete from "BANK"."ACCOUNTS" where "ID" = \'1\' and "N" = 1.5E-3 and "M" IS NULL;')
    assert found.where == {"ID": "1", "N": "1.5E-3", "M": None}
    assert parse('delete from "BANK"."ACCOUNTS"').where == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NULL", None),
        ("'x'", "x"),
        ("''", ""),
        ("''''", "'"),
        ("-1.5e+10", "-1.5e+10"),
        (".5", ".5"),
        ("N'é'", "é"),
        ("U'\\00e9'", "é"),
        ("HEXTORAW('00ff')", b"\x00\xff"),
        ("HEXTORAW('')", b""),
        ("EMPTY_CLOB()", ""),
        ("EMPTY_BLOB()", b""),
        ("TRUE", True),
        ("FALSE", False),
        ("UNISTR('caf\\00e9 \\\\ \\D83D\\DE00')", "café \\ 😀"),
        ("UNISTR('\\D83D') || UNISTR('\\DE00')", "😀"),
        ("'a' || chr(10) || 'b' || CHR(39)", "a\nb'"),
        ("HEXTORAW('00') || HEXTORAW('ff')", b"\x00\xff"),
        ("TO_DATE('2026-03-07 01:44:38')", Call("TO_DATE", "2026-03-07 01:44:38", None)),
        ("TO_DATE('07.03.26', 'DD.MM.RR')", Call("TO_DATE", "07.03.26", "DD.MM.RR")),
        ("TO_TIMESTAMP('2026-03-07 01:44:38.5')", Call("TO_TIMESTAMP", "2026-03-07 01:44:38.5", None)),
        ("TO_TIMESTAMP_TZ('2026-03-07 01:44:38 +01:00')", Call("TO_TIMESTAMP_TZ", "2026-03-07 01:44:38 +01:00", None)),
        ("TO_YMINTERVAL('+01-02')", Call("TO_YMINTERVAL", "+01-02", None)),
        ("TO_DSINTERVAL('+01 02:03:04.5')", Call("TO_DSINTERVAL", "+01 02:03:04.5", None)),
        ("TO_NUMBER('12')", "12"),
    ],
)
def test_each_literal_in_each_place(text: str, value: Literal) -> None:
    assert parse(f'insert into "S"."T"("A","B") values ({text},\'z\')').values == {"A": value, "B": "z"}
    assert parse(f'insert into "S"."T"("A","B") values (\'z\',{text})').values == {"A": "z", "B": value}
    assert parse(f'update "S"."T" set "A" = {text}, "B" = {text} where "C" = {text} and "D" = {text}') == (
        "u", "S", "T", {"A": value, "B": value}, {"C": value, "D": value}, None,
    )  # fmt: skip


def test_names_with_everything_in_them() -> None:
    names = ['a"b', "values (", "x(1)", "é ,", "and"]
    listed = ",".join('"' + name.replace('"', '""') + '"' for name in names)
    values = ",".join(f"'{n}'" for n in range(len(names)))
    found = parse(f'insert into "o.o"."t""t"({listed}) values ({values})')
    assert (found.owner, found.table) == ("o.o", 't"t')
    assert found.values == {name: str(n) for n, name in enumerate(names)}


@pytest.mark.parametrize(
    "marked",
    [
        "¦",
        "¦select 1 from dual",
        '¦insert into "S"."T" values (\'1\')',
        'insert into "S"."T"("A") values (\'1\',\'2\')¦',
        'insert into "S"."T"(¦"A","A") values (\'1\',\'2\')',
        'insert into "S"."T"("A") values (¦SYSDATE)',
        'insert into "S"."T"("A") values (¦FOO(\'1\'))',
        'insert into "S"."T"("A") values (¦HEXTORAW(\'0\'))',
        'insert into "S"."T"("A") values (¦UNISTR(\'\\00\'))',
        'insert into "S"."T"("A") values (¦UNISTR(\'\\D83D\'))',
        'insert into "S"."T"("A") values (\'1\')¦ returning',
        'insert into "S"."T"("A") values (¦\'1',
        'update "S"."T" set "A" = \'1\' where ¦"B" > \'2\'',
        'update "S"."T" set "A" = \'1\' where "B" = \'2\'¦ or "C" = \'3\'',
        'update "S"."T" set "A" = \'1\', "A" = \'2\'¦',
        'delete from "S"."T" where "A" IS ¦\'1\'',
    ],
)
def test_what_is_not_known_stops_with_its_place(marked: str) -> None:
    with pytest.raises(LogUnknownError, match=f"at character {marked.index('¦')}:"):
        parse(marked.replace("¦", ""))


def test_values_stay_out_of_messages() -> None:
    with pytest.raises(LogUnknownError) as caught:
        parse('update "S"."T" set "A" = \'1\' where "B" < \'secret\' and "C" = \'hidden\'')
    assert "secret" not in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_locators_of_lobs_and_documents() -> None:
    lob = (
        'DECLARE\n loc_c CLOB;\n buf_c VARCHAR2(6174);\nBEGIN\n select "NOTE" into loc_c from "BANK"."ACCOUNTS" '
        f"where \"ID\" = '1' and ROWID = '{ROW_ID}' for update;\n"
    )
    assert parse_locator(lob) == ("BANK", "ACCOUNTS", "NOTE", {"ID": "1"}, ROW_ID)
    document = 'update "BANK"."ACCOUNTS" a set a."DOC" = XMLType(:1) where a."ID" = \'1\' and a."NAME" IS NULL'
    assert parse_locator(document) == ("BANK", "ACCOUNTS", "DOC", {"ID": "1", "NAME": None}, None)
    with pytest.raises(LogUnknownError):
        parse_locator("BEGIN dbms_lob.write(loc_c, 1, 1, 'x'); END;")


# --- from a value to LogMiner's text, and back

names = st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=12)
texts = st.text(st.characters(codec="utf-8"), max_size=60)


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def unistr(text: str) -> str:
    units = text.encode("utf-16-be")
    return "UNISTR('" + "".join(f"\\{units[at]:02X}{units[at + 1]:02X}" for at in range(0, len(units), 2)) + "')"


literals: st.SearchStrategy[tuple[str, Literal]] = st.one_of(
    st.just(("NULL", None)),
    texts.map(lambda text: (quote(text), text)),
    texts.map(lambda text: (unistr(text), text)),
    texts.map(lambda text: (f"N{quote(text)}", text)),
    st.tuples(texts, texts).map(lambda two: (f"{quote(two[0])} || {unistr(two[1])}", two[0] + two[1])),
    st.binary(max_size=40).map(lambda raw: (f"HEXTORAW('{raw.hex()}')", raw)),
    st.decimals(allow_nan=False, allow_infinity=False).map(lambda number: (str(number), str(number))),
    st.sampled_from(["TO_DATE", "TO_TIMESTAMP", "TO_TIMESTAMP_TZ", "TO_DSINTERVAL", "TO_YMINTERVAL"]).flatmap(
        lambda name: texts.map(lambda text: (f"{name}({quote(text)})", Call(name, text, None)))
    ),
)
rows = st.dictionaries(names, literals, min_size=1, max_size=6)


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def values_of(row: dict[str, tuple[str, Literal]]) -> Named:
    return {name: value for name, (_, value) in row.items()}


def conditions(row: dict[str, tuple[str, Literal]]) -> str:
    return " and ".join(
        f"{identifier(name)} IS NULL" if text == "NULL" else f"{identifier(name)} = {text}"
        for name, (text, _) in row.items()
    )


@settings(max_examples=300, deadline=None)
@given(names, names, rows, rows, st.booleans())
def test_every_statement_comes_back(
    owner: str,
    table: str,
    new: dict[str, tuple[str, Literal]],
    old: dict[str, tuple[str, Literal]],
    has_row_id: bool,
) -> None:
    target = f"{identifier(owner)}.{identifier(table)}"
    listed = ",".join(map(identifier, new))
    insert = f"insert into {target}({listed}) values ({','.join(text for text, _ in new.values())})"
    assert parse(insert) == ("c", owner, table, values_of(new), {}, None)
    row_id = f" and ROWID = '{ROW_ID}'" if has_row_id else ""
    assigned = ", ".join(f"{identifier(name)} = {text}" for name, (text, _) in new.items())
    expected = ROW_ID if has_row_id else None
    update = f"update {target} set {assigned} where {conditions(old)}{row_id};"
    assert parse(update) == ("u", owner, table, values_of(new), values_of(old), expected)
    delete = f"delete from {target} where {conditions(old)}{row_id}"
    assert parse(delete) == ("d", owner, table, {}, values_of(old), expected)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=80) | rows.map(lambda row: f'update "S"."T" set {conditions(row)}'[:70]))
def test_anything_else_is_read_or_refused_by_name(text: str) -> None:
    with suppress(LogUnknownError):
        parse(text)


def test_it_is_quick() -> None:
    """A whole literal at a time: a row of 20 columns takes some tens of microseconds, whatever its length."""
    columns = ",".join(f'"C{n}"' for n in range(20))
    values = ",".join(f"'{'x' * 200}{n}'" for n in range(20))
    sql = f'insert into "S"."T"({columns}) values ({values})'
    parse(sql)
    began = time.process_time()
    for _ in range(2000):
        parse(sql)
    assert (time.process_time() - began) / 2000 < 0.001


# --- literals to values


@pytest.mark.parametrize(
    ("column", "literal", "value"),
    [
        (OracleColumn("C", 1, OracleType.VARCHAR2, charset="AL32UTF8"), "é", "é"),
        (OracleColumn("C", 1, OracleType.VARCHAR2, charset="AL32UTF8"), "", None),
        (OracleColumn("C", 1, OracleType.CLOB, charset="AL32UTF8"), "", ""),
        (OracleColumn("C", 1, OracleType.BLOB), b"", b""),
        (OracleColumn("C", 1, OracleType.RAW), b"\x01", b"\x01"),
        (OracleColumn("C", 1, OracleType.NUMBER, precision=9, scale=0), "-12", -12),
        (OracleColumn("C", 1, OracleType.NUMBER, precision=9, scale=0), "1E3", 1000),
        (OracleColumn("C", 1, OracleType.NUMBER), "00123.4500", "123.45"),
        (OracleColumn("C", 1, OracleType.BINARY_DOUBLE), "1.5E+000", 1.5),
        (OracleColumn("C", 1, OracleType.BINARY_DOUBLE), "-Inf", float("-inf")),
        (OracleColumn("C", 1, OracleType.BOOLEAN), True, True),
        (OracleColumn("C", 1, OracleType.BOOLEAN), "0", False),
        (OracleColumn("C", 1, OracleType.ROWID), ROW_ID, ROW_ID),
        (OracleColumn("C", 1, OracleType.DATE), Call("TO_DATE", " 1970-01-02 00:00:01", None), 86_401_000_000),
        (
            OracleColumn("C", 1, OracleType.DATE),
            Call("TO_DATE", "1970-01-01 00:00:01", "YYYY-MM-DD HH24:MI:SS"),
            1_000_000,
        ),
        (
            OracleColumn("C", 1, OracleType.TIMESTAMP, scale=6),
            Call("TO_TIMESTAMP", " 1970-01-01 00:00:00.000001000", None),
            1,
        ),
        (
            OracleColumn("C", 1, OracleType.TIMESTAMP, scale=9),
            Call("TO_TIMESTAMP", " 2026-03-07 01:44:38.123456789", None),
            "2026-03-07T01:44:38.123456789",
        ),
        (
            OracleColumn("C", 1, OracleType.TIMESTAMP_TZ, scale=6),
            Call("TO_TIMESTAMP_TZ", " 1970-01-01 01:00:00.000000000 +01:00", None),
            0,
        ),
        (
            OracleColumn("C", 1, OracleType.TIMESTAMP_TZ, scale=9),
            Call("TO_TIMESTAMP_TZ", " 2026-01-01 00:30:00.000000001 +01:00", None),
            "2025-12-31T23:30:00.000000001Z",
        ),
        (OracleColumn("C", 1, OracleType.INTERVAL_YM), Call("TO_YMINTERVAL", "-03-04", None), "P-3Y-4M"),
        (
            OracleColumn("C", 1, OracleType.INTERVAL_DS),
            Call("TO_DSINTERVAL", "+01 02:03:04.500000", None),
            "P1DT2H3M4.5S",
        ),
    ],
)
def test_literals_become_the_values_of_their_column(column: OracleColumn, literal: Literal, value: object) -> None:
    convert = converter(column)
    assert convert is not None
    assert convert(literal) == value


@pytest.mark.parametrize(
    ("column", "literal"),
    [
        (OracleColumn("C", 1, OracleType.VARCHAR2, charset="AL32UTF8"), b"x"),
        (OracleColumn("C", 1, OracleType.NUMBER, precision=9, scale=0), "12,5"),
        (OracleColumn("C", 1, OracleType.RAW), "ff"),
        (OracleColumn("C", 1, OracleType.DATE), Call("TO_DATE", "07-MAR-26", None)),
        (OracleColumn("C", 1, OracleType.DATE), Call("TO_DATE", "2026-03-07 01:44:38", "YYYY-DD-MM HH24:MI:SS")),
        (OracleColumn("C", 1, OracleType.DATE), Call("TO_YMINTERVAL", "+01-02", None)),
        (OracleColumn("C", 1, OracleType.BOOLEAN), "maybe"),
    ],
)
def test_literals_that_do_not_fit_stop_without_their_value(column: OracleColumn, literal: Literal) -> None:
    convert = converter(column)
    assert convert is not None
    with pytest.raises(LogUnknownError, match="column C") as caught:
        convert(literal)
    assert "12,5" not in str(caught.value)


def test_a_column_that_logminer_cannot_show_has_no_converter() -> None:
    assert converter(OracleColumn("C", 1, OracleType.OPAQUE)) is None
