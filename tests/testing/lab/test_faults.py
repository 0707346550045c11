import asyncio
import signal
from pathlib import Path

import psutil

from tenure.clock import SystemClock
from tenure.ids import seeded
from tenure.store.backend import Backend
from tenure.store.claims import holding
from tenure.testing.lab.evidence import Begun, Evidence
from tenure.testing.lab.faults import Blow, Stage, as_faults, caught
from tenure.testing.lab.model import Database, Scenario, planned
from tenure.testing.lab.nodes import NodeProcess
from tenure.testing.lab.records import Records
from tenure.testing.lab.traffic import Traffic
from tenure.testing.lab.waiting import until_seen
from tests.store.yard import Yard

SECOND = 1_000_000


def node(*pids: int) -> NodeProcess:
    return NodeProcess(port=1, environ={}, log=Path("log"), cwd=Path(), pids=list(pids))


async def test_a_process_on_which_a_suspect_runs_alone_is_not_stopped_for_its_end(
    backend: Backend, tmp_path: Path
):
    """What dies alone is quarantined, so a kill by chance must not meet it."""
    yard = Yard(backend)
    await yard.submit(await yard.lane(), 1)
    walker = await yard.walker()
    (claim,) = await yard.claim(walker)
    holder = node(1)
    holder.process = await asyncio.create_subprocess_exec("sleep", "600")
    shown = psutil.Process(holder.process.pid)
    evidence = Evidence(backend)
    stage = Stage(
        plan=planned(
            Scenario.KILL,
            Database.SQLITE,
            messages=1,
            endpoints=1,
            processes=1,
            seed=1,
        ),
        folder=tmp_path,
        nodes=[holder],
        servers=[],
        traffic=Traffic([holder], "key"),
        records=Records(tmp_path / "requests"),
        evidence=evidence,
        rng=seeded(1),
        clock=SystemClock(),
    )

    async def stopped() -> bool:
        return await asyncio.to_thread(shown.status) == psutil.STATUS_STOPPED

    try:
        held = (walker.node, claim.work.id, claim.number)
        assert await yard.do(lambda tx: holding.isolate(tx, *held))
        assert (await evidence.held_by(1)).alone == 1
        assert not await caught(stage, holder, 1)
        assert not await stopped()
        await yard.do(lambda tx: holding.mingle(tx, *held))
        assert await caught(stage, holder, 1)
        assert await until_seen(stopped, 30)
    finally:
        assert await holder.kill() == -signal.SIGKILL
        await stage.traffic.aclose()


def test_others_go_on_before_the_killed_process_is_back():
    blow = Blow(
        what="kill -9",
        at=10 * SECOND,
        since=10 * SECOND,
        in_flight=3,
        pid=1,
        node=node(1, 11, 12),
    )
    begun = [
        Begun(at=9 * SECOND, pid=2),
        Begun(at=10 * SECOND, pid=1),
        Begun(at=11 * SECOND, pid=2),
        Begun(at=13 * SECOND, pid=11),
        Begun(at=14 * SECOND, pid=12),
    ]
    (fault,) = as_faults([blow], begun)
    assert fault.in_flight == 3
    assert fault.others_seconds == 1.0
    assert fault.restarted_seconds == 3.0


def test_one_process_alone_goes_on_when_it_is_back():
    blow = Blow(what="kill -9", at=0, since=0, in_flight=1, pid=1, node=node(1, 2))
    (fault,) = as_faults([blow], [Begun(at=2 * SECOND, pid=2)])
    assert (fault.others_seconds, fault.restarted_seconds) == (2.0, 2.0)


def test_after_a_database_it_counts_from_the_fault_to_what_began_when_it_was_back():
    blow = Blow(what="failover", at=SECOND, since=4 * SECOND, in_flight=9)
    begun = [Begun(at=2 * SECOND, pid=1), Begun(at=5 * SECOND, pid=1)]
    (fault,) = as_faults([blow], begun)
    assert fault.others_seconds == 4.0
    assert fault.restarted_seconds is None


def test_where_nothing_began_any_more_there_is_no_time():
    blow = Blow(what="kill -9", at=5, since=5, in_flight=0, pid=1, node=node(1))
    (fault,) = as_faults([blow], [Begun(at=1, pid=1)])
    assert fault.others_seconds is None
    assert fault.restarted_seconds is None
