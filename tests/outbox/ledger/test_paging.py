"""Paging, compared with a list in memory for every cursor, size, order, direction."""

from __future__ import annotations

from itertools import product

from tenure.outbox.model import Order, PageIn
from tenure.outbox.outbox import Outbox
from tests.outbox.world import ONE, make_app


def expected(
    shown: list[str], cursor: str | None, limit: int, *, backward: bool
) -> tuple[list[str], bool]:
    """What a page must hold, from the whole list in display order."""
    if cursor is None:
        return shown[:limit], limit >= len(shown)
    at = shown.index(cursor)
    if backward:
        return shown[max(0, at - limit) : at], at - limit <= 0
    return shown[at + 1 : at + 1 + limit], at + 1 + limit >= len(shown)


async def test_every_page_is_the_one_of_the_whole_list(outbox: Outbox) -> None:
    made: list[str] = [(await make_app(outbox)).id for _ in range(5)]
    cases = product([None, *made], (False, True), range(1, 7), Order)
    for cursor, backward, limit, order in cases:
        if cursor is None and backward:
            continue
        shown = made if order is Order.ASCENDING else made[::-1]
        iterator = None if cursor is None else "-" * backward + cursor
        page = await outbox.list_applications(
            ONE, PageIn(limit=limit, iterator=iterator, order=order)
        )
        wanted, done = expected(shown, cursor, limit, backward=backward)
        where = (cursor, backward, limit, order)
        assert [each.id for each in page.data] == wanted, where
        assert page.done == done, where
        assert page.iterator == (wanted[-1] if wanted else None), where
        assert page.prev_iterator == (f"-{wanted[0]}" if wanted else None), where


async def test_a_cursor_whose_item_is_gone_still_marks_its_place(
    outbox: Outbox,
) -> None:
    made: list[str] = [(await make_app(outbox)).id for _ in range(3)]
    await outbox.delete_application(ONE, made[1])
    after = await outbox.list_applications(ONE, PageIn(iterator=made[1]))
    before = await outbox.list_applications(ONE, PageIn(iterator=f"-{made[1]}"))
    assert [each.id for each in after.data] == made[2:]
    assert [each.id for each in before.data] == made[:1]
