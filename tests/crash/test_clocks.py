"""Case 19: the wall clock of one machine is stepped by an hour, forward and back.

A real process whose C library is told another time (libfaketime, where Debian's package
is installed); its monotonic clocks go on as they are, as they do when NTP steps a clock.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tenure.outbox.keyring import new_key
from tests.crash.fleet import Fleet, fleet
from tests.crash.restarts import attempts_of, count, wait_settled
from tests.crash.sink import Sink
from tests.crash.stressed import (
    SETTINGS,
    SLOTS,
    endpoints,
    lines,
    until_holding,
    until_nodes,
)

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]

LANES = 4
MESSAGES = 40


@pytest.fixture
def told(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A file that says by how much a process's clock is off, and its environment."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    if not found:
        pytest.skip("libfaketime is not installed (Debian's package libfaketime)")
    said = tmp_path / "clock"
    said.write_text("+0\n")
    return said, {
        "LD_PRELOAD": str(found[0]),
        "FAKETIME_TIMESTAMP_FILE": str(said),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


@pytest.mark.long
async def test_case_19_a_machine_whose_clock_jumps_by_an_hour_doubles_nothing(
    told: tuple[Path, dict[str, str]], postgres_url: str, tmp_path: Path
) -> None:
    said, environ = told
    settings = {**SETTINGS, "TENURE_SECRET_KEYS": new_key()}
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    async with (
        Sink(delay=0.3) as sink,
        fleet(postgres_url, first, nodes=1, settings=settings | environ) as odd,
        fleet(postgres_url, second, nodes=1, settings=settings) as even,
    ):
        app = await endpoints(even, sink, LANES)
        (mine, other) = await until_nodes(postgres_url, ["open", "open"])
        keys = [f"key-{at}" for at in range(MESSAGES)]
        both = Fleet(nodes=[*odd.nodes, *even.nodes])
        async with asyncio.TaskGroup() as group:
            group.create_task(both.submit_all(app, keys, callers=4))
            for step in ("+3600", "-3600", "+0"):
                await until_holding(postgres_url, mine.id, SLOTS // 4)
                said.write_text(f"{step}\n")
        await wait_settled(postgres_url, MESSAGES * LANES)
        after = await until_nodes(postgres_url, ["open", "open"])
        assert [row.id for row in after] == [mine.id, other.id]
        assert set(sink.seen.values()) == {1}
        assert len(sink.seen) == MESSAGES * LANES
        lost = await attempts_of(postgres_url, "outcome = 'lost'")
        charged = await count(postgres_url, "failures > 0 OR losses > 0")
        fenced, _ = lines(both, r"\] fenced")
        print(f"clock stepped: fenced {fenced} times, lost {lost}, charged {charged}")
        assert (lost, charged) == (0, 0)
        assert fenced >= 1  # the step was seen
