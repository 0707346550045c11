from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.limits import RETRY_AFTER_MAX_SECONDS
from tenure.outbox.outcome import (
    RULES,
    Answer,
    Dead,
    Exhausted,
    Exponential,
    Retry,
    RetryPolicy,
    Succeeded,
    Verdict,
    decide,
    delay,
    http_date,
    jittered,
    reason_of,
    retry_after_seconds,
    rules_table,
)

US = 1_000_000
MOMENT = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
NOW = int(MOMENT.timestamp()) * US
DAY = 86_400
DEFAULT = RetryPolicy()
NO_JITTER = 0.5  # the middle of [0, 1]


def verdict(
    answer: Answer,
    policy: RetryPolicy = DEFAULT,
    *,
    tries: int = 0,
    failures: int = 0,
    first_attempt_at: int = NOW,
    unit: float = NO_JITTER,
) -> Verdict:
    return decide(
        answer,
        policy,
        tries=tries,
        failures=failures,
        first_attempt_at=first_attempt_at,
        now=NOW,
        unit=unit,
    )


def charged(reason: str, seconds: float = 5) -> Retry:
    at = NOW + round(seconds * US)
    return Retry(at=at, charged=True, counts_try=True, reason=reason)


def uncharged(reason: str, seconds: float = 5) -> Retry:
    at = NOW + round(seconds * US)
    return Retry(at=at, charged=False, counts_try=True, reason=reason)


TABLE: list[tuple[Answer, Verdict]] = [
    *((Answer(status=status), Succeeded()) for status in (200, 201, 202, 204, 299)),
    (Answer(status=410), Dead(reason="status_410", disable_endpoint=True)),
    (Answer(status=429), uncharged("status_429")),
    (Answer(status=429, retry_after=b"120"), uncharged("status_429", 120)),
    (Answer(status=429, retry_after=b"1"), uncharged("status_429", 5)),
    (Answer(status=429, retry_after=b"soon"), uncharged("status_429", 5)),
    (Answer(status=503), charged("status_503")),
    (Answer(status=503, retry_after=b"120"), uncharged("status_503", 120)),
    (Answer(status=503, retry_after=b"-5"), uncharged("status_503", 5)),
    (Answer(status=503, retry_after=b"soon"), charged("status_503")),
    (Answer(status=500, retry_after=b"120"), charged("status_500")),
    *(
        (Answer(status=status), charged(f"status_{status}"))
        for status in (408, 425, 500, 501, 502, 504, 505, 507, 599, 101, 600, 999)
    ),
    *(
        (Answer(status=status), Dead(reason=f"status_{status}"))
        for status in (300, 301, 302, 304, 307, 308, 399, 400, 401, 403, 404, 409)
    ),
    *(
        (Answer(status=status), Dead(reason=f"status_{status}"))
        for status in (413, 418, 422, 423, 451, 499)
    ),
    *(
        (Answer(cause=cause), charged(cause))
        for cause in ("dns", "refused", "reset", "tls", "too_large", "protocol")
    ),
    (Answer(cause="address_refused"), charged("address_refused")),
    (Answer(cause="proxy"), uncharged("proxy")),
    *(
        (
            Answer(cause=cause),
            Retry(at=NOW, charged=False, counts_try=False, reason=cause),
        )
        for cause in ("cut", "fenced")
    ),
    (Answer(), charged("no_answer")),
    (Answer(cause="timeout", phase="connect"), charged("timeout_connect")),
    (Answer(cause="timeout", phase="body", status=200), charged("timeout_body")),
    (Answer(cause="reset", status=200, bytes_received=True), charged("reset")),
    (Answer(cause="reset", status=410, bytes_received=True), charged("reset")),
    (
        Answer(cause="reset", reused=True),
        Retry(at=NOW, charged=False, counts_try=False, reason="reset"),
    ),
    (Answer(cause="reset", reused=True, bytes_received=True), charged("reset")),
    (Answer(cause="reset", reused=False), charged("reset")),
    (Answer(cause="timeout", reused=True), charged("timeout")),
    (Answer(cause="tls", reused=True), charged("tls")),
]


@pytest.mark.parametrize(("answer", "expected"), TABLE, ids=str)
def test_each_outcome_has_its_verdict(answer: Answer, expected: Verdict):
    assert verdict(answer) == expected


@given(
    status=st.none() | st.integers(0, 1000),
    cause=st.none() | st.sampled_from(["dns", "reset", "proxy", "new cause"]),
    reused=st.booleans(),
    received=st.booleans(),
    retry_after=st.none() | st.binary(max_size=12),
    date=st.none() | st.binary(max_size=12),
    tries=st.integers(0, 1000),
    failures=st.integers(0, 1000),
    age=st.integers(0, 10 * DAY),
    unit=st.floats(0, 1),
)
def test_every_answer_has_a_verdict_within_bounds(
    status: int | None,
    cause: str | None,
    reused: bool,
    received: bool,
    retry_after: bytes | None,
    date: bytes | None,
    tries: int,
    failures: int,
    age: int,
    unit: float,
):
    result = verdict(
        Answer(
            status=status,
            cause=cause,
            reused=reused,
            bytes_received=received,
            retry_after=retry_after,
            date=date,
        ),
        tries=tries,
        failures=failures,
        first_attempt_at=NOW - age * US,
        unit=unit,
    )
    match result:
        case Retry():
            assert NOW <= result.at <= NOW + RETRY_AFTER_MAX_SECONDS * US
            assert not result.charged or result.counts_try
            assert not result.charged or failures + 1 < 8
            assert not result.counts_try or age < 3 * DAY
            assert result.counts_try or (cause == "reset" and reused and not received)
        case Dead():
            assert status is not None
            assert 300 <= status <= 499
            assert result.disable_endpoint == (status == 410)
        case Exhausted():
            assert failures + 1 >= 8 or age >= 3 * DAY
        case Succeeded():
            assert status is not None
            assert 200 <= status <= 299
            assert cause is None


def test_the_default_schedule_gives_eight_attempts_over_27_6_hours():
    waits: list[float] = []
    tries = 0
    while True:
        result = verdict(Answer(status=500), tries=tries, failures=tries)
        tries += 1
        if not isinstance(result, Retry):
            break
        waits.append((result.at - NOW) / US)
    assert result == Exhausted(reason="status_500")
    assert tries == 8
    assert waits == [5, 300, 1800, 7200, 18000, 36000, 36000]
    assert round(sum(waits) / 3600, 1) == 27.6


@pytest.mark.parametrize(("unit", "seconds"), [(0, 4.0), (0.5, 5.0), (1, 6.0)])
def test_jitter_spreads_a_delay_by_a_fifth_both_ways(unit: float, seconds: float):
    assert verdict(Answer(status=500), unit=unit) == charged("status_500", seconds)


@given(seconds=st.floats(0, 1e6), unit=st.floats(0, 1))
def test_a_jittered_delay_stays_in_its_band(seconds: float, unit: float):
    spread = jittered(seconds, unit, 0.2)
    assert seconds * 0.8 * (1 - 1e-9) <= spread <= seconds * 1.2 * (1 + 1e-9)


def test_jitter_never_shortens_retry_after():
    answer = Answer(status=429, retry_after=b"5")
    assert verdict(answer, unit=0) == uncharged("status_429", 5)
    assert verdict(answer, unit=1) == uncharged("status_429", 6)


def test_tries_choose_the_delay_and_failures_the_budget():
    seen = verdict(Answer(status=500), tries=3, failures=0)
    assert seen == charged("status_500", 7200)
    last = verdict(Answer(status=500), tries=0, failures=6)
    assert last == charged("status_500", 5)
    assert isinstance(verdict(Answer(status=500), tries=0, failures=7), Exhausted)


def test_uncharged_retries_go_on_past_the_schedule_with_its_last_delay():
    result = verdict(Answer(status=429), tries=50, failures=7)
    assert result == uncharged("status_429", 36000)


@pytest.mark.parametrize(
    "answer", [Answer(status=500), Answer(status=429), Answer(cause="proxy")]
)
def test_the_time_budget_ends_charged_and_uncharged_retries(answer: Answer):
    just_before = NOW - 3 * DAY * US + 1
    assert isinstance(verdict(answer, first_attempt_at=just_before), Retry)
    spent = verdict(answer, first_attempt_at=NOW - 3 * DAY * US)
    assert spent == Exhausted(reason=reason_of(answer))


def test_a_first_attempt_long_after_the_submit_is_judged_from_itself():
    # The lane was closed for weeks: the row gets its attempts all the same.
    assert isinstance(verdict(Answer(status=500), first_attempt_at=NOW), Retry)


def test_success_and_a_stale_connection_are_no_failures_for_the_budget():
    old = NOW - 30 * DAY * US
    ok = verdict(Answer(status=200), failures=100, first_attempt_at=old)
    assert ok == Succeeded()
    stale = Answer(cause="reset", reused=True)
    again = verdict(stale, tries=9, failures=100, first_attempt_at=old)
    assert isinstance(again, Retry)
    assert (again.at, again.counts_try) == (NOW, False)


def test_an_endpoints_retry_set_makes_final_answers_retried():
    policy = RetryPolicy(retried_statuses=frozenset({302, 404, 409}))
    assert verdict(Answer(status=404), policy) == charged("status_404")
    assert verdict(Answer(status=302), policy) == charged("status_302")
    assert verdict(Answer(status=403), policy) == Dead(reason="status_403")
    spent = verdict(Answer(status=404), policy, failures=7)
    assert spent == Exhausted(reason="status_404")


@pytest.mark.parametrize("status", [200, 410, 500, 0, 299])
def test_only_3xx_and_4xx_but_410_fit_into_a_retry_set(status: int):
    with pytest.raises(ValueError, match=str(status)):
        RetryPolicy(retried_statuses=frozenset({404, status}))


def test_a_schedule_of_one_gives_one_attempt():
    policy = RetryPolicy(schedule=(0,))
    assert policy.attempts == 1
    assert verdict(Answer(status=500), policy) == Exhausted(reason="status_500")
    assert verdict(Answer(status=429), policy) == uncharged("status_429", 0)


def test_exponential_delays_double_up_to_the_longest():
    growth = Exponential(first=1, factor=2, longest=10, attempts=6)
    policy = RetryPolicy(schedule=growth)
    assert [delay(policy, tries) for tries in range(8)] == [0, 1, 2, 4, 8, 10, 10, 10]
    assert policy.attempts == 6


def test_exponential_delays_do_not_overflow():
    growth = Exponential(first=1, factor=100, longest=3600, attempts=100)
    assert delay(RetryPolicy(schedule=growth), 10**9) == 3600


@pytest.mark.parametrize(
    "changes",
    [
        {"schedule": ()},
        {"schedule": (0.0,) * 101},
        {"schedule": (0.0, -1.0)},
        {"schedule": (0.0, float("nan"))},
        {"schedule": (0.0, float("inf"))},
        {"time_budget_seconds": 0},
        {"time_budget_seconds": float("nan")},
        {"jitter": 1},
        {"jitter": -0.1},
    ],
)
def test_a_policy_out_of_bounds_is_refused(changes: dict[str, object]):
    with pytest.raises(ValueError):
        RetryPolicy(**changes)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("first", "factor", "longest", "attempts"),
    [
        (-1, 2, 10, 5),
        (11, 2, 10, 5),
        (1, 0.5, 10, 5),
        (1, 101, 10, 5),
        (1, 2, 4 * DAY, 5),
        (1, 2, float("nan"), 5),
        (1, 2, 10, 0),
        (1, 2, 10, 101),
    ],
)
def test_exponential_delays_out_of_bounds_are_refused(
    first: float, factor: float, longest: float, attempts: int
):
    with pytest.raises(ValueError):
        Exponential(first=first, factor=factor, longest=longest, attempts=attempts)


# Retry-After.

IMF = format_datetime(MOMENT + timedelta(seconds=90), usegmt=True).encode()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"120", 120),
        (b" 120\t", 120),
        (b"0", 0),
        (b"+7", 7),
        (b"1.5", 1.5),
        (b"2.", 2),
        (b"00000000000000120", 120),
        (b"86400", DAY),
        (b"86401", DAY),
        (b"9" * 5000, DAY),
        (b"-5", 0),
        (b"-1e9", None),
        (b"1e300", None),
        (b"NaN", None),
        (b"Infinity", None),
        (b"soon", None),
        (b"", None),
        (b"1,2", None),
        (b"0x10", None),
        ("١٢".encode(), None),
        (b"\xff", None),
        (IMF, 90),
        (b"Sunday, 01-Mar-26 12:01:30 GMT", 90),
        (b"Sun Mar  1 12:01:30 2026", 90),
        (b"Sun, 01 Mar 2026 11:00:00 GMT", 0),
        (b"Sun, 06 Nov 1994 08:49:37 GMT", 0),
        (b"Sunday, 06-Nov-94 08:49:37 GMT", 0),
        (b"Sun Nov  6 08:49:37 1994", 0),
        (b"Tue, 01 Jan 9999 00:00:00 GMT", DAY),
        (b"Sun, 30 Feb 2026 00:00:00 GMT", None),
        (b"Sun, 01 Foo 2026 00:00:00 GMT", None),
        (b"Sun, 01 Mar 0000 00:00:00 GMT", None),
        (b"Sun, 01 Mar 2026 25:00:00 GMT", None),
        (b"Sun, 01 Mar 2026 12:00:00 +0100", None),
        (b"2026-03-01T12:01:30Z", None),
    ],
)
def test_retry_after_is_honoured_clamped_or_ignored(
    value: bytes, seconds: float | None
):
    assert retry_after_seconds(value, now=NOW) == seconds


def test_a_retry_after_date_is_that_date():
    result = verdict(Answer(status=503, retry_after=IMF))
    assert isinstance(result, Retry)
    assert result.at == NOW + 90 * US


def test_a_date_is_read_by_the_receivers_clock_when_that_differs():
    theirs = MOMENT - timedelta(hours=5)
    until = format_datetime(theirs + timedelta(seconds=90), usegmt=True).encode()
    date = format_datetime(theirs, usegmt=True).encode()
    assert retry_after_seconds(until, now=NOW, date=date) == 90
    assert retry_after_seconds(until, now=NOW) == 0
    assert retry_after_seconds(until, now=NOW, date=b"nonsense") == 0
    assert retry_after_seconds(b"7", now=NOW, date=date) == 7


def test_whole_seconds_of_a_date_header_do_not_move_the_instant():
    date = format_datetime(MOMENT - timedelta(seconds=1), usegmt=True).encode()
    assert retry_after_seconds(IMF, now=NOW, date=date) == 90


def test_a_deployment_can_lower_the_longest_retry_after():
    policy = RetryPolicy(retry_after_max_seconds=60)
    answer = Answer(status=429, retry_after=b"120")
    assert verdict(answer, policy) == uncharged("status_429", 60)


@given(st.binary(max_size=40))
def test_any_retry_after_is_within_bounds(value: bytes):
    seconds = retry_after_seconds(value, now=NOW)
    assert seconds is None or 0 <= seconds <= DAY


@given(st.integers(0, 253_000_000_000))
def test_every_http_date_is_read_exactly(seconds: int):
    exact = datetime.fromtimestamp(seconds, UTC)
    text = format_datetime(exact, usegmt=True).encode()
    assert http_date(text, now=NOW) == seconds * US


def test_a_two_digit_year_lies_within_fifty_years():
    for text, year in ((b"75", 2075), (b"76", 2076), (b"77", 1977), (b"00", 2000)):
        found = http_date(b"Monday, 01-Jan-" + text + b" 00:00:00 GMT", now=NOW)
        assert found == int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * US


def test_a_leap_second_is_read():
    found = http_date(b"Sat, 31 Dec 2016 23:59:60 GMT", now=NOW)
    assert found == int(datetime(2016, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) * US


def test_reasons_are_short():
    assert reason_of(Answer(cause="x" * 1000, phase="y")) == "x" * 200
    assert reason_of(Answer(cause="dns", phase="connect")) == "dns"


def test_the_table_for_the_documentation_has_a_line_for_each_rule():
    lines = rules_table().splitlines()
    assert len(lines) == len(RULES) + 2
    assert "| 429 | retry, uncharged, after max(Retry-After, delay(tries)) |" in lines
    assert "| 410 | dead, and the endpoint is disabled (`gone`) |" in lines
