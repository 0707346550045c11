"""Case 22: a transaction that stays open keeps dead rows, and costs no row its turn.

Cases 23 and 24, what a claim costs beside a long history and large backlogs, are in
tests/store/test_claims.py.
"""

from __future__ import annotations

import pytest

from tests.outbox.world import held_transaction
from tests.work.rig import Probe, Rig, until

ROUNDS, ROWS = 5, 40


@pytest.mark.parametrize("dialect", ["postgresql"])
@pytest.mark.parametrize("pinned", [True, False], ids=["pinned", "control"])
async def test_case_22_under_a_pinned_horizon_every_row_is_still_sent(
    rig: Rig, database_url: str, pinned: bool
) -> None:
    kind = Probe()
    await rig.member(kind, slots=16)
    lanes = [await rig.lane() for _ in range(4)]
    async with held_transaction(database_url) as held:
        if pinned:  # a snapshot that vacuum may not pass
            await held.run(
                lambda tx: tx.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            )
            await held.run(lambda tx: tx.all("SELECT count(*) FROM work"))
        for number in range(ROUNDS):
            for lane in lanes:
                await rig.submit(lane, *["m"] * (ROWS // len(lanes)))
            await until(lambda n=number: kind.requests("m") == (n + 1) * ROWS)
        counts = await held.run(lambda tx: tx.scalar("SELECT count(*) FROM work"))
        assert counts == (0 if pinned else ROUNDS * ROWS), "what the snapshot shows"
    await until(lambda: all(not m.loop.hand for m in rig.members))
    assert dict(await rig.counts()) == {"succeeded": ROUNDS * ROWS}
