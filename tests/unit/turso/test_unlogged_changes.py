"""Which tables were changed without the log, by what the log says and what the database has."""

from __future__ import annotations

from lowwater_extractor.sources.turso.schema.unlogged import unlogged_changes

_PLACES = {"t": (1, 2), "u": (2, 3)}
_KNOWN = {"t": "t (id, a)", "u": "u (id)"}


def test_nothing_is_unlogged_if_the_log_leads_to_what_the_database_has() -> None:
    ahead = [
        (("t", "t (id, a)", 2), ("t", "t (id, a, b)", 2)), (None, ("new", "new (id)", 9)), (("u", "u (id)", 3), None)
    ]  # fmt: skip
    now = {"t": "t (id, a, b)", "new": "new (id)"}
    assert unlogged_changes((_KNOWN, _PLACES), ahead, (now, {"t": (1, 2), "new": (2, 9)})) == (set(), set())


def test_a_renamed_column_is_unlogged_also_behind_a_logged_change() -> None:
    now = {"t": "t (id, c, b)", "u": "u (id)"}
    assert unlogged_changes((_KNOWN, _PLACES), [], ({**_KNOWN, "t": "t (id, c)"}, _PLACES)) == ({"t"}, set())
    ahead = [(("t", "t (id, a)", 2), ("t", "t (id, a, b)", 2))]
    assert unlogged_changes((_KNOWN, _PLACES), ahead, (now, _PLACES)) == ({"t"}, set())


def test_a_renamed_table_is_unlogged_under_both_names() -> None:
    now = {"v": "v (id, a)", "u": "u (id)"}
    assert unlogged_changes((_KNOWN, _PLACES), [], (now, {"v": (1, 2), "u": (2, 3)})) == ({"t", "v"}, set())


def test_tables_that_have_swapped_names_are_unlogged_where_their_texts_are_the_same() -> None:
    known = {"t": "(id)", "u": "(id)"}
    assert unlogged_changes((known, _PLACES), [], (known, {"t": (2, 3), "u": (1, 2)})) == ({"t", "u"}, set())


def test_a_table_that_the_log_makes_again_may_lie_elsewhere() -> None:
    ahead = [(("t", "t (id, a)", 2), None), (None, ("t", "t (id, a)", 8))]
    assert unlogged_changes((_KNOWN, _PLACES), ahead, (_KNOWN, {"t": (7, 8), "u": (2, 3)})) == (set(), set())


def test_name_that_is_only_dropped_in_the_log_was_given_without_it() -> None:
    now = {"u": "u (id)"}
    assert unlogged_changes((_KNOWN, _PLACES), [(("v", "v (id, a)", 2), None)], (now, {"u": (2, 3)})) == ({"t"}, {"v"})


def test_table_that_is_dropped_under_the_name_of_another_is_unlogged() -> None:
    """Its statement differs from that of the known table, or only its root page does."""
    now = {"u": "u (id, a)"}
    assert unlogged_changes((_KNOWN, _PLACES), [(("t", "t (id)", 3), None)], (now, {"u": (1, 2)})) == ({"u"}, {"t"})
    alike = {"t": "(id)", "u": "(id)"}
    assert unlogged_changes((alike, _PLACES), [(("t", "(id)", 3), None)], ({"u": "(id)"}, {"u": (1, 2)})) == (
        {"u"},
        {"t"},
    )
