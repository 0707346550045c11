import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typeid import TypeID

from tenure import ids
from tenure.ids import Prefix, id_floor, id_instant, is_id, jitter, new_id, seeded

NEAR = 2_000_000_000_000_000  # microseconds; the year 2033
instants = st.integers(min_value=0, max_value=(1 << 48) * 1000 - 1)


@pytest.mark.parametrize("prefix", list(Prefix))
def test_an_id_is_what_the_typeid_library_reads(prefix: Prefix):
    text = new_id(prefix)
    parsed = TypeID.from_string(text)
    assert parsed.prefix == prefix
    assert str(TypeID.from_uuid(parsed.uuid, prefix=prefix)) == text
    assert parsed.uuid.version == 7


def test_ids_of_one_process_rise_in_the_order_they_were_made():
    made = [new_id("msg") for _ in range(20_000)]
    assert made == sorted(set(made))


def test_an_id_tells_when_it_was_made():
    before = time.time_ns() // 1_000_000
    instant = id_instant(new_id("msg"))
    after = time.time_ns() // 1_000_000
    assert before * 1000 <= instant <= after * 1000


@given(instants)
def test_an_id_carries_the_instant_it_was_given(instant: int):
    text = new_id("msg", at_us=instant)
    assert is_id(text, "msg")
    assert id_instant(text) == instant // 1000 * 1000


@given(instants, instants)
def test_the_floor_separates_ids_made_before_from_those_made_later(one: int, two: int):
    text = new_id("msg", at_us=one)
    assert (text >= id_floor("msg", two)) == (one // 1000 >= two // 1000)


@pytest.mark.parametrize("instant", [-1, -(10**18), (1 << 60) * 1000])
def test_a_floor_outside_what_ids_can_carry_is_the_nearest(instant: int):
    floor = id_floor("msg", instant)
    assert is_id(floor, "msg")
    assert (floor < id_floor("msg", NEAR)) == (instant < NEAR)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "msg",
        "msg_",
        "msg_01h455vb4pex5vsknk084sn02",
        "msg_01h455vb4pex5vsknk084sn02qq",
        "msg_81h455vb4pex5vsknk084sn02q",
        "msg_01H455VB4PEX5VSKNK084SN02Q",
        "msg_01h455vb4pex5vsknk084sn02u",
        "msg_01h455vb4pex5vsknk084sn02\n",
        "app_01h455vb4pex5vsknk084sn02q",
        "msg-01h455vb4pex5vsknk084sn02q",
        " msg_01h455vb4pex5vsknk084sn02q",
    ],
)
def test_what_is_not_exactly_an_id_of_the_prefix_is_none(text: str):
    assert not is_id(text, "msg")


def test_the_canonical_form_is_an_id():
    assert is_id("msg_01h455vb4pex5vsknk084sn02q", "msg")


@pytest.mark.parametrize("text", ["", "_01h455vb4pex5vsknk084sn02q", "msg_x", "msg"])
def test_the_instant_of_no_id_is_refused(text: str):
    with pytest.raises(ValueError, match="is not an id"):
        id_instant(text)


@pytest.mark.parametrize(
    ("make", "prefix"),
    [
        (ids.new_app_id, "app"),
        (ids.new_attempt_id, "atmpt"),
        (ids.new_endpoint_id, "ep"),
        (ids.new_key_id, "key"),
        (ids.new_message_id, "msg"),
        (ids.new_task_id, "qtask"),
        (ids.new_tenant_id, "org"),
        (ids.new_work_id, "wrk"),
    ],
)
def test_each_noun_has_its_prefix(make: Callable[[], str], prefix: str):
    assert is_id(make(), prefix)


def test_a_seed_repeats_its_jitter():
    again = [jitter(1, 2, seeded(7)) for _ in range(3)]
    assert len(set(again)) == 1


@given(st.integers())
def test_jitter_stays_between_its_ends(seed: int):
    assert 0.8 <= jitter(0.8, 1.2, seeded(seed)) <= 1.2
    assert 0.8 <= jitter(0.8, 1.2) <= 1.2


def test_tokens_are_url_safe_and_never_repeat():
    made = {ids.token(16) for _ in range(100)}
    assert len(made) == 100
    assert all(t.replace("-", "").replace("_", "").isalnum() for t in made)
    assert len(ids.random_bytes(24)) == 24


def test_a_forked_child_draws_other_jitter_than_its_parent():
    program = (
        "import os; from tenure.ids import jitter; child = os.fork();"
        " os.write(1, b'%f\\n' % jitter(0, 1)); child and os.waitpid(child, 0)"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=60
    )
    assert len(set(said.stdout.split())) == 2
