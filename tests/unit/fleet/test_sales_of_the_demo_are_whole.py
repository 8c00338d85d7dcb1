"""The demo's check of a sale: one order with lines of the same sum; only Turso's log may join two sales."""

from __future__ import annotations

import pytest

from lowwater_devkit.demo.shop_books import _is_whole

WHOLE = [("orders", 7, 5), ("order_lines", 7, 2), ("order_lines", 7, 3)]


@pytest.mark.parametrize("more", [[], [("orders", 8, 1), ("order_lines", 8, 1)]])
def test_sale_with_all_its_lines_is_whole(more: list[tuple[str, int, int]]) -> None:
    assert _is_whole([*WHOLE, *more], 7)


@pytest.mark.parametrize("values", [WHOLE[1:], WHOLE[:2], [*WHOLE, ("orders", 7, 6)]])
def test_sale_without_its_order_or_a_line_is_torn(values: list[tuple[str, int, int]]) -> None:
    assert not _is_whole(values, 7)
