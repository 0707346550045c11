from __future__ import annotations

from tenure.ids import NodeId
from tenure.store import nodes
from tenure.store.nodes import Beat
from tests.store.yard import SECOND, Yard


async def beat(yard: Yard, node: NodeId, tick: int = 0, still: float = 0.0) -> Beat:
    still_us = round(still * SECOND)
    return await yard.do(lambda tx: nodes.beat(tx, node, tick=tick, still_us=still_us))


async def test_an_incarnations_id_is_never_used_again(yard: Yard):
    first = await yard.node()
    await yard.do(lambda tx: tx.run("DELETE FROM node"))
    assert await yard.node() > first


async def test_a_beat_raises_the_number_and_shows_who_else_is_there(yard: Yard):
    first, second, third = [await yard.node(name) for name in "abc"]
    await yard.close(third, "silent")
    one = await beat(yard, first)
    two = await beat(yard, first)
    assert (one.beat, two.beat) == (2, 3)
    assert [node.id for node in two.others] == [second]
    assert (two.others[0].name, two.others[0].state) == ("b", "open")


async def test_the_tick_is_dated_by_how_long_the_node_saw_it_stand_still(yard: Yard):
    node = await yard.node()

    async def age() -> int:
        (row,) = await yard.do(nodes.list_nodes)
        assert row.tick_at is not None
        return row.beat_at - row.tick_at

    await beat(yard, node, tick=1)
    assert await age() == 0
    yard.pass_time(5)
    await beat(yard, node, tick=1, still=5)
    assert await age() == 5 * SECOND
    yard.pass_time(3600)  # the database's clock is stepped: nobody stood still so long
    await beat(yard, node, tick=1, still=10)
    assert await age() == 10 * SECOND
    await beat(yard, node, tick=2)
    assert await age() == 0


async def test_a_node_that_beat_meanwhile_stays_open(yard: Yard):
    node = await yard.node()
    seen = (await beat(yard, node)).beat
    await beat(yard, node)
    close = nodes.close_node
    assert not await yard.do(lambda tx: close(tx, node, "silent", if_beat=seen))
    assert (await beat(yard, node)).beat == 4


async def test_a_silent_node_is_closed_once_and_for_ever(yard: Yard):
    node = await yard.node()
    seen = (await beat(yard, node)).beat
    close = nodes.close_node
    assert await yard.do(lambda tx: close(tx, node, "silent", if_beat=seen))
    assert not await yard.do(lambda tx: close(tx, node, "again"))
    assert (await beat(yard, node)).beat is None
    assert not await yard.do(lambda tx: nodes.drain_node(tx, node))
    assert await yard.do(nodes.list_nodes) == []
    (row,) = await yard.do(lambda tx: nodes.list_nodes(tx, closed=True))
    assert (row.state, row.closed_why) == ("closed", "silent")
    assert row.closed_at is not None


async def test_a_draining_node_beats_on_and_drains_once(yard: Yard):
    node = await yard.node()
    assert await yard.do(lambda tx: nodes.drain_node(tx, node))
    assert not await yard.do(lambda tx: nodes.drain_node(tx, node))
    assert (await beat(yard, node)).beat == 2
    (row,) = await yard.do(nodes.list_nodes)
    assert row.state == "draining"


async def test_a_node_says_where_its_lock_is_once_it_knows_its_id(yard: Yard):
    node = await yard.node()
    await yard.do(lambda tx: nodes.set_lock_path(tx, node, f"/run/{node}.lock"))
    (row,) = await yard.do(nodes.list_nodes)
    assert row.lock_path == f"/run/{node}.lock"
