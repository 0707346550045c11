import pytest

from tenure import limits
from tenure.errors import ConfigInvalid
from tenure.limits import Durations

PROPERTIES = [name for name, v in vars(Durations).items() if isinstance(v, property)]


def test_a_node_that_cannot_renew_stops_long_before_others_take_its_work():
    real = Durations()
    assert real.beat_seconds * 2 <= real.reconcile_age_seconds
    assert real.reconcile_age_seconds < real.fence_seconds
    assert real.fence_seconds + real.beat_seconds * 2 <= real.dead_after_seconds


def test_a_connection_that_dies_silently_costs_a_node_no_fence():
    # The beat before it, its statement, its end (3 s), and a new connection.
    lost = limits.BLOCKING_STATEMENT_SECONDS + 3 + limits.CONNECT_SECONDS
    assert limits.BEAT_SECONDS + lost < limits.FENCE_SECONDS
    assert limits.BLOCKING_STATEMENT_SECONDS < limits.STATEMENT_SECONDS


def test_no_send_outlives_the_deadline_that_spares_it():
    assert limits.REQUEST_MAX_SECONDS <= limits.SHORT_DEADLINE_SECONDS


def test_the_default_schedule_is_eight_attempts_over_27_6_hours():
    assert len(limits.RETRY_SECONDS) == 8
    assert round(sum(limits.RETRY_SECONDS) / 3600, 1) == 27.6


@pytest.mark.parametrize("name", [n for n in PROPERTIES if n != "retry_seconds"])
def test_one_factor_divides_every_duration(name: str):
    assert getattr(Durations(10), name) == getattr(Durations(), name) / 10
    assert getattr(Durations(), name) == getattr(limits, name.upper())


def test_retry_delays_are_divided_too():
    assert Durations().retry_seconds == limits.RETRY_SECONDS
    assert Durations(5).retry_seconds[1] == 1
    assert Durations(5).scaled(10) == 2


def test_the_factor_is_read_from_the_environment():
    assert Durations.from_environment({}).factor == 1
    assert Durations.from_environment({"TENURE_TEST_TIME_FACTOR": " 20 "}).factor == 20


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1e9", "fast"])
def test_a_factor_that_makes_no_sense_is_refused_by_name(text: str):
    with pytest.raises(ConfigInvalid, match="TENURE_TEST_TIME_FACTOR"):
        Durations.from_environment({"TENURE_TEST_TIME_FACTOR": text})


def test_every_bound_is_above_zero():
    for name, value in vars(limits).items():
        if name.isupper() and isinstance(value, int | float):
            assert value > 0, name
