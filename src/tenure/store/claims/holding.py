"""What a node does with the claims it holds, short of settling them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tenure.ids import NodeId, WorkId
from tenure.kernel import transitions
from tenure.kernel.commands import Answer
from tenure.kernel.states import Work
from tenure.kernel.transitions import Change
from tenure.store.claims.rows import decide_rows

if TYPE_CHECKING:
    from tenure.store.tx import Tx

Claim = tuple[WorkId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """The two ways in which a node's memory and the database differ.

    `released`: only the database knew them, and now they are given back. `unheld`: only
    the database knows them, and whether they were forgotten is not certain yet. `gone`:
    only memory knows them, so they were lost, cancelled or settled. `cancel`: an
    operator asks for their end.
    """

    released: Sequence[Claim]
    unheld: Sequence[Claim]
    gone: Sequence[Claim]
    cancel: Sequence[Claim]


def release(tx: Tx, node: NodeId, claims: Sequence[Claim]) -> int:
    """Give back claims that were not begun; return how many were still held."""
    return len(_release(tx, node, claims))


def _release(tx: Tx, node: NodeId, claims: Sequence[Claim]) -> list[Claim]:
    """Give back claims; return those that were still held."""
    numbers = dict(claims)

    def decide(work: Work) -> Change:
        return transitions.release(work, numbers[work.id], node, tx.now)

    decided = decide_rows(tx, list(numbers), decide)
    return [
        (id_, numbers[id_])
        for id_, (_, change) in decided.items()
        if change.answer is Answer.APPLIED
    ]


def reconcile(
    tx: Tx,
    node: NodeId,
    held: Collection[Claim],
    older_than_us: int,
    *,
    unheld_before: Collection[Claim],
) -> Reconciled:
    """Compare the claims in memory with those in the database, both ways.

    A claim that only the database knows is released, uncharged: its answer was lost on
    its way. It must be older than `older_than_us` by the database's clock, and be one of
    `unheld_before`, those that the caller's last comparison found so too: a clock that
    is stepped makes a claim look old that is only on its way into memory.
    """
    found = tx.all(
        "SELECT id, claim, claimed_at, cancel_requested_at FROM work"
        " WHERE state = 'claimed' AND claimed_by = :node",
        {"node": node},
    )
    mine = set(held)
    known = {(row[0], row[1]) for row in found}
    unheld = {(row[0], row[1]): row[2] for row in found if (row[0], row[1]) not in mine}
    before = set(unheld_before)
    released = _release(
        tx,
        node,
        [
            claim
            for claim, claimed_at in unheld.items()
            if claim in before and claimed_at < tx.now - older_than_us
        ],
    )
    return Reconciled(
        released=released,
        unheld=sorted(unheld.keys() - set(released)),
        gone=sorted(mine - known),
        cancel=[
            (row[0], row[1])
            for row in found
            if row[3] is not None and (row[0], row[1]) in mine
        ],
    )


def isolate(tx: Tx, node: NodeId, work: WorkId, claim: int) -> bool:
    """Say that this claim runs alone on its node; False if it is not held any more.

    Its time starts again: what it waited for the others is not taken from its budget.
    """
    begun = tx.run(
        "UPDATE work SET alone = :alone, claimed_at = :now,"
        " deadline_at = deadline_at - claimed_at + :now"
        f" WHERE {_STILL_HELD}",
        {"work": work, "claim": claim, "node": node, "alone": True, "now": tx.now},
    )
    return begun == 1


def mingle(tx: Tx, node: NodeId, work: WorkId, claim: int) -> bool:
    """Say that others run beside this claim again, before the first of them starts."""
    ended = tx.run(
        f"UPDATE work SET alone = :alone WHERE {_STILL_HELD}",
        {"work": work, "claim": claim, "node": node, "alone": False},
    )
    return ended == 1


_STILL_HELD = (
    "id = :work AND claim = :claim AND claimed_by = :node AND state = 'claimed'"
)
