"""Sessions that end anywhere: every row of a table comes, and none twice.

The rows of the recovery table of the two-phase cursor are tests by these names: normal, after the commit, failed before
the commit, recovered when committed, recovered when not committed.
"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.extractor.synced_table import (
    COLUMNS,
    Killed,
    Session,
    Table,
    assert_same,
    begun,
    prepared,
    saved,
    state,
    syncs,
    table_of,
)
from tests.unit.extractor.test_publisher import CODEC, Broker

from lowwater.records.positions import Order
from lowwater.records.types import Abandon
from lowwater_extractor.incremental.cursors import LOWEST, Cursors, TableCursor

# -- the recovery table ----------------------------------------------------------------------------------


def test_normal_next_is_in_the_position_before_any_row_is_published() -> None:
    broker, table = Broker(), table_of(5)
    session = prepared(broker, table)
    assert saved(broker) == TableCursor(COLUMNS, None, ("3", "4"))
    assert syncs(broker) == []
    assert session.reader.reads == 0
    session.close()


def test_nothing_is_read_until_next_is_durable() -> None:
    broker, table = Broker(), table_of(5)
    session = begun(broker, table)
    session.poll_until(is_open=True)
    for _ in range(5):
        session.poll()
    assert session.reader.reads == 0
    session.close()


def test_after_the_commit_next_has_become_committed() -> None:
    broker, table = Broker(), table_of(5)
    session = begun(broker, table, count_max=100)
    session.sync()
    assert saved(broker) == TableCursor(COLUMNS, ("3", "4"), None)
    assert_same(broker, table)
    table.put(1)
    session.sync()
    assert [len(rows) for rows in syncs(broker)] == [5, 1]
    assert saved(broker).committed == ("4", "1")
    assert_same(broker, table)
    session.close()


def test_failed_before_the_commit_the_same_rows_are_read_again() -> None:
    broker, table = Broker(), table_of(5)
    session = prepared(broker, table)
    # all rows are handed over; the batch that has the commit is not committed
    session.poll_until(is_open=False)
    session.close()
    assert saved(broker).next == ("3", "4")
    table.put(7)
    again = Session(broker, table)
    again.poll_until(is_open=False)
    again.commit()
    assert [len(rows) for rows in syncs(broker)] == [5], "up to the same bound, not to what came since"
    again.sync()
    assert_same(broker, table)
    again.close()


def test_recovered_when_committed_it_moves_on_and_publishes_nothing_again() -> None:
    broker, table = Broker(), table_of(5)
    session = prepared(broker, table, count_max=6)
    # five rows and the commit fill a batch: the sync is durable before the position has moved
    session.poll_until(is_open=False)
    session.close()
    assert [len(rows) for rows in syncs(broker)] == [5]
    assert saved(broker).next == ("3", "4")
    again = Session(broker, table)
    again.poll_until(is_open=False)
    again.commit()
    assert [len(rows) for rows in syncs(broker)] == [5]
    assert saved(broker) == TableCursor(COLUMNS, ("3", "4"), None)
    table.put(2)
    again.sync()
    assert_same(broker, table)
    again.close()


def test_recovered_when_not_committed_it_begins_again_at_committed() -> None:
    broker, table = Broker(), table_of(5)
    prepared(broker, table).close()
    again = Session(broker, table)
    again.poll_until(is_open=False)
    again.commit()
    assert_same(broker, table)
    assert saved(broker) == TableCursor(COLUMNS, ("3", "4"), None)
    again.close()


# -- a part of it is published ---------------------------------------------------------------------------


def half_published(broker: Broker, table: Table) -> None:
    """Two parts of three rows each are committed, then the process dies."""
    prepared(broker, table).close()
    session = Session(broker, table, calls=3)
    try:
        session.poll_until(is_open=False)
    except Killed:
        session.close()
    assert broker.position.in_progress is not None
    assert syncs(broker) == []


def test_a_part_whose_rows_are_the_same_is_gone_on_behind() -> None:
    broker, table = Broker(), table_of(9)
    half_published(broker, table)
    session = Session(broker, table, count_max=100)
    session.poll_until(is_open=False)
    session.commit()
    assert not [v for v in broker.changes if CODEC.record_type(v) is Abandon]
    assert_same(broker, table)
    session.close()


def test_a_part_whose_rows_have_changed_is_abandoned() -> None:
    broker, table = Broker(), table_of(9)
    half_published(broker, table)
    table.put(0)
    session = Session(broker, table, count_max=100)
    session.poll_until(is_open=False)
    session.commit()
    assert [len(rows) for rows in syncs(broker)] == [8]
    session.sync()
    assert_same(broker, table)
    session.close()


def test_a_part_of_rows_that_are_all_gone_is_abandoned_and_nothing_is_published() -> None:
    broker, table = Broker(), table_of(9)
    half_published(broker, table)
    for key in range(9):
        table.put(key)
    session = Session(broker, table, count_max=100)
    session.poll_until(is_open=False)
    session.commit()
    assert broker.position.in_progress is None
    assert syncs(broker) == []
    session.sync()
    assert_same(broker, table)
    session.close()


def test_a_part_for_another_cursor_is_abandoned_and_the_table_is_read_anew() -> None:
    broker, table = Broker(), table_of(9)
    half_published(broker, table)
    session = Session(broker, table, columns=("other", "id"), count_max=100)
    session.poll()
    session.commit()
    assert broker.position.in_progress is None
    session.sync()
    assert_same(broker, table)
    session.close()


# -- the rest --------------------------------------------------------------------------------------------


def test_rows_without_a_cursor_come_once_with_the_first_sync_of_their_table() -> None:
    broker, table = Broker(), Table()
    table.put_null(1)
    session = begun(broker, table, count_max=100)
    session.sync()
    assert saved(broker).committed == LOWEST
    assert_same(broker, table)
    table.put_null(2)
    table.put(3)
    session.sync()
    assert state(broker).keys() == {1, 3}, "a null that comes later is not seen"
    table.put(2)
    session.sync()
    assert_same(broker, table)
    session.close()


def test_an_empty_table_has_no_transaction_and_the_mark_moves_on() -> None:
    broker = Broker()
    session = begun(broker, Table())
    session.sync()
    assert syncs(broker) == []
    (thread,) = broker.position.threads
    assert thread.mark == Order.mark(Cursors.unpack(thread.resume).count)
    session.close()


def test_a_new_position_begins_above_an_old_one() -> None:
    """A reset must not go back below what the merger has released."""
    first, second = Broker(), Broker()
    session = begun(first, table_of(3))
    session.sync()
    session.close()
    begun(second, table_of(3)).close()
    assert second.position.threads[0].mark > first.position.threads[0].published


#: (what, key or how far)
actions = st.lists(
    st.tuples(
        st.sampled_from(["put", "put_same", "put_same", "sync", "sync", "polls", "commit", "kill", "die"]),
        st.integers(0, 9),
    ),
    max_size=60,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(actions)
def test_whatever_happens_every_row_comes_and_none_twice(work: list[tuple[str, int]]) -> None:
    broker, table = Broker(), Table()
    session = begun(broker, table)

    def run(action: str, number: int) -> None:
        for _ in range(number * (action == "polls")):
            session.poll()
        if action in ("commit", "sync"):
            session.commit()
        for _ in range(number * (action == "sync")):
            session.poll()
            session.commit()

    for action, number in work:
        if action.startswith("put"):
            table.put(number, ticks=action == "put")
        elif action in ("kill", "die"):
            session.close()
            session = Session(broker, table, calls=None if action == "kill" else number)
        else:
            try:
                run(action, number)
            except Killed:
                session.close()
                session = Session(broker, table)
    session.close()
    session = Session(broker, table)
    for _ in range(120):
        session.poll()
        session.commit()
    session.close()
    assert_same(broker, table)
