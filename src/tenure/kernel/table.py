"""Every verb as a table: what it does to a row in each state, and the page it makes.

The table is a second statement of `tenure.kernel.transitions`, written to be read. A
test enumerates rows and commands and holds both to each other: for every case the first
line that fits says what the verb does, and every line fits some case. So the page in
`docs/internals/states.md`, which is made from it, cannot be wrong for long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tenure.ids import NodeId
from tenure.kernel import transitions
from tenure.kernel.commands import (
    Cut,
    Failed,
    Loss,
    Parked,
    Settlement,
    Succeeded,
    Waiting,
)
from tenure.kernel.states import Attempt, AttemptOutcome, State, Work
from tenure.limits import QUARANTINE_LOSSES, SUSPECT_LOSSES

UNCHANGED: Final = "unchanged"


class Verb(StrEnum):
    """What may be said to a row. `promote` is a part of claim."""

    SUBMIT = "submit"
    PROMOTE = "promote"
    CLAIM = "claim"
    SETTLE = "settle"
    RELEASE = "release"
    LOSE = "lose"
    WAKE = "wake"
    CANCEL = "cancel"
    HOLD = "hold"
    REPLAY = "replay"


IN_SQL: Final = frozenset({Verb.SUBMIT, Verb.PROMOTE, Verb.CLAIM})
"""Verbs that one statement of the store does; the kernel decides all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row and what is said to it, as the conditions of the table see it."""

    verb: Verb
    work: Work
    claim: int = 0
    node: NodeId | None = None
    said: Settlement | None = None
    earlier: Attempt | None = None
    late_success: bool = True
    loss: Loss | None = None
    now: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line: from any of `before`, when all of `when` hold, to `after`."""

    verb: Verb
    before: tuple[str, ...]
    when: tuple[str, ...] = ()
    after: str
    writes: str = ""


def place(work: Work) -> str:
    """Name where a row stands: its phase while it is ready, else its state."""
    return str(work.phase if work.phase is not None else work.state)


def _failed(case: Case) -> Failed | None:
    result = case.said.result if case.said is not None else None
    return result if isinstance(result, Failed) else None


def _retries(case: Case, *, later: bool) -> bool:
    failed = _failed(case)
    if failed is None or failed.retry_at is None:
        return False
    return (failed.retry_at > case.now) == later


def _says(case: Case, result: type[object]) -> bool:
    return case.said is not None and isinstance(case.said.result, result)


def _woken_since(case: Case) -> bool:
    result = case.said.result if case.said is not None else None
    return isinstance(result, Waiting) and result.wakes != case.work.wakes


def _first_late_success(case: Case) -> bool:
    earlier = case.earlier
    return (
        _says(case, Succeeded)
        and case.late_success
        and earlier is not None
        and earlier.node == case.node
        and earlier.outcome is AttemptOutcome.LOST
        and earlier.late_at is None
        and case.claim > case.work.replay_claim
    )


def _quarantined(case: Case) -> bool:
    return case.work.alone or case.work.losses + 1 >= QUARANTINE_LOSSES


CONDITIONS: Final[Mapping[str, Callable[[Case], bool]]] = {
    "holds the claim": lambda c: (
        c.node is not None and transitions.holds(c.work, c.claim, c.node)
    ),
    "success": lambda c: _says(c, Succeeded),
    "cancel requested": lambda c: c.work.cancel_requested_at is not None,
    "an earlier claim succeeded": lambda c: c.work.success_claim is not None,
    "failure, again at once": lambda c: _retries(c, later=False),
    "failure, again later": lambda c: _retries(c, later=True),
    "failure, never again": lambda c: _failed(c) is not None,
    "waits, woken meanwhile": _woken_since,
    "waits": lambda c: _says(c, Waiting),
    "the row's own fault": lambda c: _says(c, Parked),
    "cut at the drain budget": lambda c: _says(c, Cut),
    "first late success of a lost claim since the last replay": _first_late_success,
    "at most once": lambda c: c.loss is not None and c.loss.at_most_once,
    "not charged": lambda c: c.loss is not None and not c.loss.charged,
    f"alone, or loss {QUARANTINE_LOSSES}": _quarantined,
    f"loss {SUSPECT_LOSSES} or later": lambda c: c.work.losses + 1 >= SUSPECT_LOSSES,
    "stands in line": lambda c: transitions.stands_in_line(c.work),
}
"""What the words of `Line.when` mean. Words of submit and claim are the store's."""

READY: Final = ("due", "later", "asleep")
ENDED: Final = ("succeeded", "dead", "cancelled")
ANY: Final = (*READY, "claimed", *ENDED, "parked")
HELD: Final = ("claimed", "due", "later", "asleep", "dead", "parked")
"""Where a row may stand whose holder has not answered yet: claimed, or lost."""

TABLE: Final = (
    Line(verb=Verb.SUBMIT, before=(), when=("due now",), after="due"),
    Line(verb=Verb.SUBMIT, before=(), when=("due at a later instant",), after="later"),
    Line(
        verb=Verb.SUBMIT,
        before=(),
        when=("waits for an event, or behind the head of its line",),
        after="asleep",
    ),
    Line(
        verb=Verb.SUBMIT,
        before=(),
        when=("due now, and born as a claim of the node that takes it in",),
        after="claimed",
        writes="claim 1, holder, deadline",
    ),
    Line(verb=Verb.PROMOTE, before=("later",), when=("it has come due",), after="due"),
    Line(
        verb=Verb.CLAIM,
        before=("due",),
        when=("its lane has room",),
        after="claimed",
        writes="claim + 1, holder, deadline",
    ),
    Line(
        verb=Verb.SETTLE,
        before=HELD,
        when=("holds the claim", "success"),
        after="succeeded",
        writes="no holder",
    ),
    Line(
        verb=Verb.SETTLE,
        before=HELD,
        when=("holds the claim", "cancel requested"),
        after="cancelled",
        writes="no holder",
    ),
    Line(
        verb=Verb.SETTLE,
        before=HELD,
        when=("holds the claim", "an earlier claim succeeded"),
        after="succeeded",
        writes="no holder",
    ),
    Line(
        verb=Verb.SETTLE,
        before=HELD,
        when=("holds the claim", "failure, again at once"),
        after="due",
        writes="no holder; failures and tries as the result says",
    ),
    Line(
        verb=Verb.SETTLE,
        before=HELD,
        when=("holds the claim", "failure, again later"),
        after="later",
        writes="no holder; failures and tries as the result says",
    ),
    Line(
        verb=Verb.SETTLE,
        before=HELD,
        when=("holds the claim", "failure, never again"),
        after="dead",
        writes="no holder; failures and tries as the result says",
    ),
    Line(
        verb=Verb.SETTLE,
        before=HELD,
        when=("holds the claim", "waits, woken meanwhile"),
        after="due",
        writes="no holder",
    ),
    Line(
        verb=Verb.SETTLE,
        before=HELD,
        when=("holds the claim", "waits"),
        after="asleep",
        writes="no holder",
    ),
    Line(
        verb=Verb.SETTLE,
        before=HELD,
        when=("holds the claim", "the row's own fault"),
        after="parked",
        writes="no holder",
    ),
    Line(
        verb=Verb.SETTLE,
        before=HELD,
        when=("holds the claim", "cut at the drain budget"),
        after="due",
        writes="no holder",
    ),
    Line(
        verb=Verb.SETTLE,
        before=(*READY, "dead", "parked"),
        when=("first late success of a lost claim since the last replay",),
        after="succeeded",
        writes="no holder; the late columns of the lost attempt",
    ),
    Line(
        verb=Verb.SETTLE,
        before=("claimed",),
        when=("first late success of a lost claim since the last replay",),
        after="claimed",
        writes="success_claim; the late columns of the lost attempt",
    ),
    Line(
        verb=Verb.SETTLE,
        before=ANY,
        after=UNCHANGED,
        writes="the late columns of a lost attempt, once",
    ),
    Line(
        verb=Verb.RELEASE,
        before=("claimed",),
        when=("holds the claim", "cancel requested"),
        after="cancelled",
        writes="no holder; releases + 1",
    ),
    Line(
        verb=Verb.RELEASE,
        before=("claimed",),
        when=("holds the claim", "an earlier claim succeeded"),
        after="succeeded",
        writes="no holder; releases + 1",
    ),
    Line(
        verb=Verb.RELEASE,
        before=("claimed",),
        when=("holds the claim",),
        after="due",
        writes="no holder; releases + 1",
    ),
    Line(verb=Verb.RELEASE, before=ANY, after=UNCHANGED),
    Line(
        verb=Verb.LOSE,
        before=("claimed",),
        when=("cancel requested",),
        after="cancelled",
        writes="no holder",
    ),
    Line(
        verb=Verb.LOSE,
        before=("claimed",),
        when=("an earlier claim succeeded",),
        after="succeeded",
        writes="no holder",
    ),
    Line(
        verb=Verb.LOSE,
        before=("claimed",),
        when=("at most once",),
        after="dead",
        writes="the holder is kept",
    ),
    Line(
        verb=Verb.LOSE,
        before=("claimed",),
        when=("not charged",),
        after="due",
        writes="the holder is kept",
    ),
    Line(
        verb=Verb.LOSE,
        before=("claimed",),
        when=(f"alone, or loss {QUARANTINE_LOSSES}",),
        after="parked",
        writes="the holder is kept; losses + 1",
    ),
    Line(
        verb=Verb.LOSE,
        before=("claimed",),
        when=(f"loss {SUSPECT_LOSSES} or later",),
        after="later",
        writes="the holder is kept; losses + 1",
    ),
    Line(
        verb=Verb.LOSE,
        before=("claimed",),
        after="due",
        writes="the holder is kept; losses + 1",
    ),
    Line(verb=Verb.LOSE, before=ANY, after=UNCHANGED),
    Line(verb=Verb.WAKE, before=READY, when=("stands in line",), after=UNCHANGED),
    Line(verb=Verb.WAKE, before=READY, after="due", writes="wakes + 1"),
    Line(verb=Verb.WAKE, before=("claimed",), after="claimed", writes="wakes + 1"),
    Line(verb=Verb.WAKE, before=ANY, after=UNCHANGED),
    Line(
        verb=Verb.CANCEL,
        before=(*READY, "parked"),
        after="cancelled",
        writes="no holder",
    ),
    Line(
        verb=Verb.CANCEL,
        before=("claimed",),
        when=("cancel requested",),
        after=UNCHANGED,
    ),
    Line(
        verb=Verb.CANCEL,
        before=("claimed",),
        after="claimed",
        writes="cancel_requested_at",
    ),
    Line(verb=Verb.CANCEL, before=ENDED, after=UNCHANGED),
    Line(verb=Verb.HOLD, before=READY, after="parked", writes="no holder"),
    Line(
        verb=Verb.HOLD,
        before=("claimed",),
        when=("cancel requested",),
        after="cancelled",
        writes="no holder",
    ),
    Line(
        verb=Verb.HOLD,
        before=("claimed",),
        when=("an earlier claim succeeded",),
        after="succeeded",
        writes="no holder",
    ),
    Line(verb=Verb.HOLD, before=("claimed",), after="parked", writes="no holder"),
    Line(verb=Verb.HOLD, before=ANY, after=UNCHANGED),
    Line(verb=Verb.REPLAY, before=READY, when=("stands in line",), after=UNCHANGED),
    Line(verb=Verb.REPLAY, before=READY, after="due", writes="wakes + 1"),
    Line(verb=Verb.REPLAY, before=("claimed",), after=UNCHANGED),
    Line(
        verb=Verb.REPLAY,
        before=(*ENDED, "parked"),
        after="due",
        writes="no holder; budgets and evidence restart; replay_claim = claim",
    ),
)


_LOST_ROWS: Final = (
    "A ready row is *due*, *later* or *asleep*. A claim whose holder is no open node is"
    " *lost*: the row goes on, and its holder is kept, so that it can still answer as if"
    " the row were claimed until somebody else claims it."
)


def line_of(case: Case) -> Line:
    """Return the first line that fits. Raises LookupError when none does."""
    for line in TABLE:
        fits = line.verb is case.verb and place(case.work) in line.before
        if fits and all(CONDITIONS[word](case) for word in line.when):
            return line
    raise LookupError(f"no line for {case.verb} of a row that is {place(case.work)}")


def diagram() -> str:
    """Return the table's changes of state as a Mermaid state diagram.

    Lines that hold for lost rows too are drawn from *claimed* only.
    """
    edges: dict[tuple[str, str], list[str]] = {}
    for line in TABLE:
        if line.after == UNCHANGED:
            continue
        sources = ("claimed",) if line.before is HELD else line.before or ("[*]",)
        for source in sources:
            verbs = edges.setdefault((_state(source), _state(line.after)), [])
            if line.verb not in verbs:
                verbs.append(line.verb)
    drawn = [
        f"    {source} --> {target}: {', '.join(verbs)}"
        for (source, target), verbs in edges.items()
        if source != target
    ]
    return "\n".join(["stateDiagram-v2", *drawn])


def _state(where: str) -> str:
    return str(State.READY) if where in READY else where


def page() -> str:
    """Return the table and the diagram as a page of Markdown."""
    rows = [
        f"| {line.verb} | {_sources(line)} | {', '.join(line.when)}"
        f" | {line.after} | {line.writes} |"
        for line in TABLE
    ]
    return "\n".join(
        [
            "# States of a work row",
            "",
            "<!-- Made by `just docs`; change src/tenure/kernel/table.py instead. -->",
            "",
            "```mermaid",
            diagram(),
            "```",
            "",
            _LOST_ROWS,
            "",
            "For each verb, the first line that fits.",
            "",
            "| verb | from | when | to | writes |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _sources(line: Line) -> str:
    if line.before is HELD:
        return "claimed or lost"
    return "any other" if line.before is ANY else ", ".join(line.before)
