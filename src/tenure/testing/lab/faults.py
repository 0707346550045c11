"""What is done to a service under traffic, and what was in flight when it was done."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, assert_never

from tenure.clock import US
from tenure.limits import LAB_ALONE_SECONDS, LAB_BUSY_SECONDS, LAB_LOOK_SECONDS
from tenure.testing.lab.model import Fault, Scenario
from tenure.testing.lab.postgres import Stop
from tenure.testing.lab.waiting import until, until_seen

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tenure.clock import Clock
    from tenure.ids import Random
    from tenure.testing.lab.evidence import Begun, Evidence
    from tenure.testing.lab.model import Plan
    from tenure.testing.lab.nodes import NodeProcess
    from tenure.testing.lab.postgres import Postgres
    from tenure.testing.lab.records import Records
    from tenure.testing.lab.traffic import Traffic

__all__ = ["Blow", "Stage", "as_faults", "caught", "strike"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """A fault as it was dealt; requests count as going on from `since` (µs)."""

    what: str
    at: int
    since: int
    in_flight: int
    pid: int | None = None
    """The process that was ended."""
    node: NodeProcess | None = None
    """Which comes back as another process."""


@dataclass(slots=True, kw_only=True)
class Stage:
    """Everything that a fault may touch, and what was dealt so far."""

    plan: Plan
    folder: Path
    nodes: Sequence[NodeProcess]
    servers: list[Postgres]
    """Of the database: the one that nodes talk to, and its standby once there is one."""
    traffic: Traffic
    records: Records
    evidence: Evidence
    rng: Random
    clock: Clock
    blows: list[Blow] = field(default_factory=list[Blow])
    unclean: int = 0

    @property
    def finished(self) -> bool:
        """Whether everything has arrived."""
        return self.records.pairs >= self.plan.deliveries


async def strike(stage: Stage) -> None:
    """Deal the plan's faults; returns when all were dealt and everything has arrived."""
    plan = stage.plan
    async with asyncio.TaskGroup() as group:
        if plan.faults is not None:
            parts = plan.faults + 1
            for turn in range(plan.faults):
                await _prepare(stage, turn)
                # Half a part is under way at the fault, the other half comes after it.
                await stage.traffic.allow(plan.messages * (2 * turn + 3) // (2 * parts))
                await _reach(stage, plan.deliveries * (turn + 1) // parts)
                await _deal(stage, turn, group)
        if plan.every_seconds is not None:
            await _keep_dealing(stage, plan.every_seconds, group)
        await stage.traffic.allow(plan.messages)
    await _reach(stage, plan.deliveries)


async def _reach(stage: Stage, pairs: int) -> None:
    await until(lambda: stage.records.pairs >= pairs)


async def _keep_dealing(
    stage: Stage, every_seconds: float, group: asyncio.TaskGroup
) -> None:
    """Deal a fault every so often; a run that is over sooner has one half way."""
    messages, deliveries = stage.plan.messages, stage.plan.deliveries
    await stage.traffic.allow(messages - messages // 4)
    turn, due = 0, stage.clock.monotonic() + every_seconds
    while turn == 0 or not stage.finished:
        early = turn == 0 and stage.records.pairs >= deliveries // 2
        if stage.clock.monotonic() < due and not early:
            await asyncio.sleep(LAB_LOOK_SECONDS)
            continue
        await _prepare(stage, turn)
        await _deal(stage, turn, group)
        await stage.traffic.allow(messages)
        # From now: a host that took long must not be struck twice for it.
        due = stage.clock.monotonic() + every_seconds
        turn += 1


async def _deal(stage: Stage, turn: int, group: asyncio.TaskGroup) -> None:
    match stage.plan.scenario:
        case Scenario.KILL:
            blow = await _kill(stage, group)
        case Scenario.ROLLING:
            blow = await _restart(stage, turn)
        case Scenario.RESTART_DATABASE:
            blow = await _restart_database(stage, turn)
        case Scenario.BACKENDS:
            blow = await _end_backends(stage)
        case Scenario.FAILOVER:
            blow = await _fail_over(stage)
        case other:
            assert_never(other)
    stage.blows.append(blow)


async def _kill(stage: Stage, group: asyncio.TaskGroup) -> Blow:
    """Kill a random process that answers; it is started again beside the rest.

    Where there are several, another one answers: a host on which a start takes longer
    than the pause between two kills would otherwise never get anything done.
    """
    needed = min(2, len(stage.nodes))
    await until(lambda: sum(node.ready for node in stage.nodes) >= needed)
    node = stage.rng.choice([node for node in stage.nodes if node.ready])
    pid = node.pids[-1]

    async def busy() -> bool:
        return (await stage.evidence.held_by(pid)).claimed > 0

    # A process that holds nothing has nothing to lose; one that stays idle is killed too.
    await until_seen(busy, LAB_BUSY_SECONDS)
    await until_seen(partial(caught, stage, node, pid), LAB_ALONE_SECONDS)
    at = stage.clock.wall_us()
    await node.kill()
    held = await stage.evidence.held_by(pid)
    group.create_task(_start(node))
    return Blow(
        what="kill -9",
        at=at,
        since=at,
        in_flight=held.claimed + held.taken,
        pid=pid,
        node=node,
    )


async def caught(stage: Stage, node: NodeProcess, pid: int) -> bool:
    """Stop a process for its end, or let it go on while a suspect runs alone on it.

    Whatever dies alone with its process is quarantined: nobody could tell a row that
    was hit by chance from one that kills.
    """
    node.signal(signal.SIGSTOP)
    if not (await stage.evidence.held_by(pid)).alone:
        return True
    node.signal(signal.SIGCONT)
    return False


async def _start(node: NodeProcess) -> None:
    await node.start()


async def _restart(stage: Stage, turn: int) -> Blow:
    """Ask one process to end, one after the other, and start it again."""
    node = stage.nodes[turn % len(stage.nodes)]
    pid, at = node.pids[-1], stage.clock.wall_us()
    held = await stage.evidence.held_by(pid)
    code = await node.terminate()
    stage.unclean += code != 0
    await node.start()
    return Blow(
        what="SIGTERM", at=at, since=at, in_flight=held.claimed, pid=pid, node=node
    )


async def _restart_database(stage: Stage, turn: int) -> Blow:
    """Crash the server and, every other time, stop it; then start it again."""
    how = Stop.CRASH if turn % 2 == 0 else Stop.FAST
    before = await stage.evidence.claimed()
    at = stage.clock.wall_us()
    await stage.servers[-1].stop(how)
    await stage.servers[-1].start()
    since = stage.clock.wall_us()
    after = await stage.evidence.claimed()
    return Blow(
        what="database crash" if how is Stop.CRASH else "database stop",
        at=at,
        since=since,
        in_flight=max(before, after),
    )


async def _end_backends(stage: Stage) -> Blow:
    """End a random part of the connections, whatever they are doing."""
    server = stage.servers[-1]
    before = await stage.evidence.claimed()
    found = await server.client_backends()
    chosen = stage.rng.sample(found, stage.rng.randint(1, len(found))) if found else []
    at = stage.clock.wall_us()
    await server.terminate(chosen)
    after = await stage.evidence.claimed()
    return Blow(
        what=f"{len(chosen)} backends",
        at=at,
        since=at,
        in_flight=max(before, after),
    )


async def _prepare(stage: Stage, turn: int) -> None:
    """Do what has to be there before a fault."""
    if stage.plan.scenario is Scenario.FAILOVER:
        home = stage.folder / f"standby-{turn + 1}"
        stage.servers.append(await stage.servers[-1].standby(home))


async def _fail_over(stage: Stage) -> Blow:
    """Crash the primary; its synchronous standby answers at the same address."""
    primary, standby = stage.servers[-2:]
    before = await stage.evidence.claimed()
    at = stage.clock.wall_us()
    await primary.stop(Stop.CRASH)
    await standby.promote(primary.port)
    since = stage.clock.wall_us()
    after = await stage.evidence.claimed()
    return Blow(what="failover", at=at, since=since, in_flight=max(before, after))


def as_faults(blows: Sequence[Blow], begun: Sequence[Begun]) -> tuple[Fault, ...]:
    """Return the blows with how long it took until requests began again."""
    return tuple(_as_fault(blow, begun) for blow in blows)


def _as_fault(blow: Blow, begun: Sequence[Begun]) -> Fault:
    after = [each for each in begun if each.at >= blow.since]
    others = next((each.at for each in after if each.pid != blow.pid), None)
    heir = None
    if blow.node is not None and blow.pid is not None:
        pids = blow.node.pids
        heirs = pids[pids.index(blow.pid) + 1 :][:1]
        heir = next((each.at for each in after if each.pid in heirs), None)
    return Fault(
        what=blow.what,
        at=blow.at,
        in_flight=blow.in_flight,
        others_seconds=None if others is None else (others - blow.at) / US,
        restarted_seconds=None if heir is None else (heir - blow.at) / US,
    )
