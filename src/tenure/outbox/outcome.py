"""What happens after an attempt: the table "outcome → verdict" as a pure function.

`RULES` is that table; the code walks it and the documentation prints it
(`rules_table`), so they cannot differ. The first rule that applies decides.

Two counts drive it: `tries` (attempts since submit or replay) chooses the delay,
`failures` is held against the count budget. Budgets are judged here only, so only when
an attempt fails: waiting for a lane to open never uses a message up.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Final, assert_never

import msgspec

from tenure.clock import US
from tenure.limits import (
    REASON_MAX,
    RETRY_AFTER_MAX_SECONDS,
    RETRY_JITTER,
    RETRY_SECONDS,
    RETRY_STEPS_MAX,
    TIME_BUDGET_SECONDS,
)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back from one request.

    `cause` is set when no whole answer came (`dns`, `refused`, `reset`, `tls`,
    `timeout`, `protocol`, `address_refused`, `proxy` …) and wins over `status`: an
    answer that broke off is none. `phase` says where a timeout struck. `reused` and
    `bytes_received` tell a stale pooled connection from a receiver that hung up.
    """

    status: int | None = None
    cause: str | None = None
    phase: str | None = None
    reused: bool = False
    bytes_received: bool = False
    retry_after: bytes | None = None
    date: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential:
    """Delays that grow: at once, `first`, `first · factor` … up to `longest` (s)."""

    first: float
    factor: float
    longest: float
    attempts: int

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.longest <= TIME_BUDGET_SECONDS:
            raise ValueError(
                "exponential delays need 0 ≤ first ≤ longest"
                f" ≤ {TIME_BUDGET_SECONDS:.0f} s"
            )
        if not 1 <= self.factor <= 100:
            raise ValueError("the factor of exponential delays is 1 to 100")
        if not 1 <= self.attempts <= RETRY_STEPS_MAX:
            raise ValueError(f"a message gets 1 to {RETRY_STEPS_MAX} attempts")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and when an endpoint's failures are tried again.

    `schedule` is the delay in seconds before each attempt, the first one's included
    (0 = at once), or `Exponential`. `retried_statuses` are 3xx and 4xx answers that are
    tried again although they are final by default; 410 and 429 have their own rule.
    """

    schedule: tuple[float, ...] | Exponential = RETRY_SECONDS
    time_budget_seconds: float = TIME_BUDGET_SECONDS
    retried_statuses: frozenset[int] = frozenset()
    jitter: float = RETRY_JITTER
    retry_after_max_seconds: float = RETRY_AFTER_MAX_SECONDS

    def __post_init__(self) -> None:
        if not isinstance(self.schedule, Exponential):
            if not 1 <= len(self.schedule) <= RETRY_STEPS_MAX:
                raise ValueError(f"a schedule has 1 to {RETRY_STEPS_MAX} delays")
            if not all(0 <= each <= TIME_BUDGET_SECONDS for each in self.schedule):
                raise ValueError(
                    f"each delay is 0 to {TIME_BUDGET_SECONDS:.0f} seconds"
                )
        if not self.time_budget_seconds > 0:
            raise ValueError("the time budget is more than 0 seconds")
        if not 0 <= self.jitter < 1:
            raise ValueError("jitter is a share, 0 to 1")
        for status in sorted(self.retried_statuses):
            if not 300 <= status <= 499 or status == HTTPStatus.GONE:
                raise ValueError(
                    f"{status} cannot be in the retry set: 3xx and 4xx but 410 can"
                )

    @property
    def attempts(self) -> int:
        """Return the count budget: failures after which a message is dead."""
        match self.schedule:
            case Exponential(attempts=attempts):
                return attempts
            case schedule:
                return len(schedule)


def delay(policy: RetryPolicy, tries: int) -> float:
    """Return the seconds to wait once `tries` attempts were made, without jitter.

    Past the end of the schedule, where uncharged retries lead, the last delay holds.
    """
    match policy.schedule:
        case Exponential() as growth:
            if tries <= 0:
                return 0.0
            steps = min(tries, growth.attempts, RETRY_STEPS_MAX) - 1
            return min(growth.longest, growth.first * growth.factor**steps)
        case schedule:
            return schedule[max(0, min(tries, len(schedule) - 1))]


def jittered(seconds: float, unit: float, jitter: float) -> float:
    """Spread a delay evenly over ± its `jitter` share; `unit` is random in [0, 1]."""
    return seconds * (1 + jitter * (2 * unit - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Succeeded:
    """The receiver has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dead:
    """Never tried again by itself; 410 also disables the endpoint (`gone`)."""

    reason: str
    disable_endpoint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Tried again at `at` (µs); `charged` raises failures, `counts_try` tries."""

    at: int
    charged: bool
    counts_try: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhausted:
    """Dead because a budget ran out: `reason` is that of the last failure."""

    reason: str


Verdict = Succeeded | Dead | Retry | Exhausted


class Effect(StrEnum):
    """What a rule of the table does."""

    SUCCEED = "succeeded"
    DISABLE = "dead, and the endpoint is disabled (`gone`)"
    DIE = "dead"
    AGAIN = "retry at once on a fresh connection, uncharged, tries unchanged"
    WAIT = "retry, uncharged, after max(Retry-After, delay(tries))"
    CHARGE = "retry, charged, after delay(tries)"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with what the rules need to know beside it."""

    answer: Answer
    retry_after: float | None
    retried_statuses: frozenset[int]

    @property
    def status(self) -> int:
        """Return the status of a whole answer, 0 when there was none."""
        return 0 if self.answer.cause else self.answer.status or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row of the table."""

    outcome: str
    applies: Callable[[Facts], bool]
    effect: Effect


def _stale_connection(facts: Facts) -> bool:
    answer = facts.answer
    return answer.cause == "reset" and answer.reused and not answer.bytes_received


RULES: Final[tuple[Rule, ...]] = (
    Rule(
        outcome="a reused connection ends before any response byte (`reset`)",
        applies=_stale_connection,
        effect=Effect.AGAIN,
    ),
    Rule(
        outcome="cut by our own stop, or fenced before anything was written",
        applies=lambda facts: facts.answer.cause in {"cut", "fenced"},
        effect=Effect.AGAIN,
    ),
    Rule(
        outcome="a proxy's own failure",
        applies=lambda facts: facts.answer.cause == "proxy",
        effect=Effect.WAIT,
    ),
    Rule(
        outcome="no whole answer: dns, refused, reset, tls, timeout, protocol …",
        applies=lambda facts: facts.status == 0,
        effect=Effect.CHARGE,
    ),
    Rule(
        outcome="2xx",
        applies=lambda facts: 200 <= facts.status <= 299,
        effect=Effect.SUCCEED,
    ),
    Rule(
        outcome="410",
        applies=lambda facts: facts.status == HTTPStatus.GONE,
        effect=Effect.DISABLE,
    ),
    Rule(
        outcome="429",
        applies=lambda facts: facts.status == HTTPStatus.TOO_MANY_REQUESTS,
        effect=Effect.WAIT,
    ),
    Rule(
        outcome="503 with Retry-After",
        applies=lambda facts: (
            facts.status == HTTPStatus.SERVICE_UNAVAILABLE
            and facts.retry_after is not None
        ),
        effect=Effect.WAIT,
    ),
    Rule(
        outcome="408, 425, other 5xx",
        applies=lambda facts: (
            facts.status in {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY}
            or not 200 <= facts.status <= 499
        ),
        effect=Effect.CHARGE,
    ),
    Rule(
        outcome="3xx, 4xx in the endpoint's retry set",
        applies=lambda facts: facts.status in facts.retried_statuses,
        effect=Effect.CHARGE,
    ),
    Rule(
        outcome="other 3xx, 4xx",
        applies=lambda facts: 300 <= facts.status <= 499,
        effect=Effect.DIE,
    ),
)


def decide(
    answer: Answer,
    policy: RetryPolicy,
    *,
    tries: int,
    failures: int,
    first_attempt_at: int,
    now: int,
    unit: float,
) -> Verdict:
    """Return what follows from an attempt's answer.

    `tries` and `failures` are the row's counts before this attempt is settled; instants
    are in µs; `unit` is a random number in [0, 1] for the jitter. Retry-After is never
    shortened by jitter. Pure: the same arguments give the same verdict.
    """
    retry_after = (
        None
        if answer.retry_after is None
        else retry_after_seconds(
            answer.retry_after,
            now=now,
            date=answer.date,
            longest=policy.retry_after_max_seconds,
        )
    )
    facts = Facts(
        answer=answer,
        retry_after=retry_after,
        retried_statuses=policy.retried_statuses,
    )
    reason = reason_of(answer)
    late = now - first_attempt_at >= policy.time_budget_seconds * US
    effect = _effect(facts)
    match effect:
        case Effect.SUCCEED:
            return Succeeded()
        case Effect.DISABLE:
            return Dead(reason=reason, disable_endpoint=True)
        case Effect.DIE:
            return Dead(reason=reason)
        case Effect.AGAIN:
            # The receiver has not failed, so no budget is judged.
            return Retry(at=now, charged=False, counts_try=False, reason=reason)
        case Effect.WAIT:
            if late:
                return Exhausted(reason=reason)
            wait = jittered(delay(policy, tries + 1), unit, policy.jitter)
            at = now + round(max(retry_after or 0.0, wait) * US)
            return Retry(at=at, charged=False, counts_try=True, reason=reason)
        case Effect.CHARGE:
            if late or failures + 1 >= policy.attempts:
                return Exhausted(reason=reason)
            wait = jittered(delay(policy, tries + 1), unit, policy.jitter)
            at = now + round(wait * US)
            return Retry(at=at, charged=True, counts_try=True, reason=reason)
        case _:
            assert_never(effect)


def reason_of(answer: Answer) -> str:
    """Return the short reason that is stored: `status_404`, `dns`, `timeout_body`."""
    if answer.cause:
        parts = (answer.cause, answer.phase if answer.cause == "timeout" else None)
        return "_".join(part for part in parts if part)[:REASON_MAX]
    return "no_answer" if answer.status is None else f"status_{answer.status}"


def rules_table() -> str:
    """Return the table as Markdown, in the order in which the rules are tried."""
    rows = [f"| {rule.outcome} | {rule.effect.value} |" for rule in RULES]
    return "\n".join(["| outcome | verdict |", "|---|---|", *rows, ""])


def _effect(facts: Facts) -> Effect:
    return next(rule.effect for rule in RULES if rule.applies(facts))


_SECONDS: Final = re.compile(rb"([+-]?)([0-9]+)(\.[0-9]*)?")
_MONTHS: Final = {
    month: number
    for number, month in enumerate(
        b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), start=1
    )
}
_CLOCK: Final = rb"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_DATES: Final = (
    # The three forms of RFC 9110, 5.6.7, in the order of their age.
    re.compile(
        rb"[A-Za-z]{3}, (?P<day>\d\d) (?P<month>[A-Za-z]{3}) (?P<year>\d{4}) "
        + _CLOCK
        + rb" GMT"
    ),
    re.compile(
        rb"[A-Za-z]{6,9}, (?P<day>\d\d)-(?P<month>[A-Za-z]{3})-(?P<year>\d\d) "
        + _CLOCK
        + rb" GMT"
    ),
    re.compile(
        rb"[A-Za-z]{3} (?P<month>[A-Za-z]{3}) (?P<day>[ \d]\d) "
        + _CLOCK
        + rb" (?P<year>\d{4})"
    ),
)
_SKEW_SECONDS: Final = 60.0  # below it a Date header's whole seconds tell nothing


def retry_after_seconds(
    value: bytes,
    *,
    now: int,
    date: bytes | None = None,
    longest: float = RETRY_AFTER_MAX_SECONDS,
) -> float | None:
    """Return the wait that a Retry-After header asks for, or None if unusable.

    Whole or decimal seconds, or an HTTP date in its three forms. Negative values and
    past dates become 0, more than `longest` becomes that; anything else (`NaN`, `1e300`, `soon`) counts
    as no header. A date is read against the receiver's own clock when its Date header
    shows that it differs from ours.
    """
    text = value.strip(b" \t")
    seconds = _SECONDS.fullmatch(text)
    if seconds:
        sign, whole, fraction = seconds.groups(b"")
        if sign == b"-":
            return 0.0
        if len(whole.lstrip(b"0")) > 9:
            return longest
        return _clamped(float(whole + fraction), longest)
    until = http_date(text, now=now)
    if until is None:
        return None
    theirs = None if date is None else http_date(date.strip(b" \t"), now=now)
    skew = 0.0 if theirs is None else (theirs - now) / US
    if abs(skew) <= _SKEW_SECONDS:
        skew = 0.0
    return _clamped((until - now) / US - skew, longest)


def http_date(text: bytes, *, now: int) -> int | None:
    """Return the instant (µs) of an HTTP date, or None if it is none.

    A two-digit year is the one within 50 years of `now` (RFC 9110).
    """
    found = next(filter(None, (form.fullmatch(text) for form in _DATES)), None)
    if found is None:
        return None
    month = _MONTHS.get(found["month"].title())
    if month is None:
        return None
    year = int(found["year"])
    if len(found["year"]) == 2:
        this_year = datetime.fromtimestamp(now / US, UTC).year
        year += this_year - this_year % 100
        if year > this_year + 50:
            year -= 100
    try:
        moment = datetime(
            year,
            month,
            int(found["day"]),
            int(found["hour"]),
            int(found["minute"]),
            min(int(found["second"]), 59),  # a leap second
            tzinfo=UTC,
        )
    except ValueError:
        return None
    return int(moment.timestamp()) * US


def _clamped(seconds: float, longest: float) -> float:
    return max(0.0, min(seconds, longest))
