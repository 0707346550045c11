"""One scenario from an empty folder to its figures; everything it started is ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tenure.clock import Clock, SystemClock
from tenure.doctor import About, examine
from tenure.errors import TenureError
from tenure.ids import seeded, token
from tenure.limits import (
    LAB_ANSWER_SECONDS,
    LAB_LOOK_SECONDS,
    LAB_SHOWN_MAX,
    LAB_STILL_SECONDS,
    TIME_FACTOR_VARIABLE,
    Durations,
)
from tenure.outbox.keyring import new_key
from tenure.testing.lab.evidence import Evidence
from tenure.testing.lab.faults import Stage, as_faults, strike
from tenure.testing.lab.model import Figures
from tenure.testing.lab.nodes import NodeProcess, Orphans, free_port
from tenure.testing.lab.postgres import Postgres
from tenure.testing.lab.records import Records
from tenure.testing.lab.sink import SinkProcess
from tenure.testing.lab.traffic import Traffic
from tenure.testing.lab.waiting import until_seen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tenure.testing.lab.model import Plan
    from tenure.testing.lab.programs import Programs

__all__ = ["Seen", "run"]

RECORDS: Final = "requests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How far a run has come."""

    accepted: int
    arrived: int
    faults: int


async def run(
    plan: Plan,
    *,
    folder: Path,
    programs: Programs | None,
    told: Callable[[Seen], None] = lambda _seen: None,
    clock: Clock | None = None,
) -> Figures:
    """Run one scenario in an empty folder; return what was counted.

    Starts real processes and, with `programs`, a PostgreSQL of its own; all of them
    have ended when this returns or raises. `told` hears how far it has come. Raises
    DatabaseUnavailable or ServerUnreachable when something cannot be started, and
    InvariantViolated for an answer that no fault explains.
    """
    started = _Started()
    lab = _Run(plan, folder, started, told, clock or SystemClock())
    try:
        return await lab.run(programs)
    except BaseExceptionGroup as group:
        raise _first(group) from group
    finally:
        await started.end()


class _Started:
    """What has to be ended, whatever happens."""

    def __init__(self) -> None:
        self.orphans: Final = Orphans()
        self.nodes: Final[list[NodeProcess]] = []
        self.servers: Final[list[Postgres]] = []
        self.sink: SinkProcess | None = None

    async def end(self) -> None:
        """End all of it; the signals go out before anything is waited for."""
        self.orphans.close()
        for node in self.nodes:
            node.signal(signal.SIGKILL)
        for server in self.servers:
            server.crash_now()
        running = [node.kill() for node in self.nodes if node.process is not None]
        ends = [*running, *(server.stop() for server in self.servers)]
        if self.sink is not None:
            ends.append(self.sink.stop())
        await asyncio.gather(*ends, return_exceptions=True)


class _Run:
    def __init__(
        self,
        plan: Plan,
        folder: Path,
        started: _Started,
        told: Callable[[Seen], None],
        clock: Clock,
    ) -> None:
        self._plan: Final = plan
        self._folder: Final = folder
        self._started: Final = started
        self._told: Final = told
        self._clock: Final = clock
        self._records: Final = Records(folder / RECORDS)
        self._key: Final = f"tnr_{token()}"

    async def run(self, programs: Programs | None) -> Figures:
        started, plan, folder = self._started, self._plan, self._folder
        await asyncio.to_thread((folder / RECORDS).touch)
        started.sink = await SinkProcess.start(
            folder / RECORDS, answer_seconds=LAB_ANSWER_SECONDS
        )
        url = f"sqlite:///{folder / 'tenure.db'}"
        if programs is not None:
            server = await Postgres.create(programs, folder / "primary")
            started.servers.append(server)
            url = server.url
        started.nodes.extend(await asyncio.to_thread(self._nodes, url))
        first, *others = started.nodes
        await first.start()  # it makes the schema
        await asyncio.gather(*(node.start() for node in others))
        traffic = Traffic(started.nodes, self._key)
        async with contextlib.AsyncExitStack() as opened:
            opened.push_async_callback(traffic.aclose)
            evidence = await Evidence.open(url)
            opened.push_async_callback(evidence.aclose)
            stage = Stage(
                plan=plan,
                folder=folder,
                nodes=started.nodes,
                servers=started.servers,
                traffic=traffic,
                records=self._records,
                evidence=evidence,
                rng=seeded(plan.seed),
                clock=self._clock,
            )
            app = await traffic.prepare(started.sink.url, plan.endpoints)
            began = self._clock.monotonic()
            await self._play(stage, app)
            took = self._clock.monotonic() - began
            return await self._count(stage, took)

    def _nodes(self, url: str) -> list[NodeProcess]:
        folder = self._folder
        runtime = folder / "run"
        runtime.mkdir(mode=0o700)
        environ = {
            "TENURE_DATABASE_URL": url,
            "TENURE_BOOTSTRAP_KEY": self._key,
            "TENURE_SECRET_KEYS": new_key(),
            "TENURE_ALLOW_NETWORKS": "127.0.0.0/8",
            "XDG_RUNTIME_DIR": str(runtime),
        }
        inherited = _inherited(os.environ)
        return [
            NodeProcess(
                port=free_port(),
                environ=environ,
                inherited=inherited,
                log=folder / f"node-{at + 1}.log",
                cwd=folder,
                orphans=self._started.orphans,
                clock=self._clock,
            )
            for at in range(self._plan.processes)
        ]

    async def _play(self, stage: Stage, app: str) -> None:
        """Let traffic and faults run until everything has arrived, or nothing comes."""
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch(stage))
                submitting = group.create_task(
                    stage.traffic.submit(app, self._plan.messages)
                )
                await strike(stage)
                await submitting
                watching.cancel()
        except BaseExceptionGroup as raised:
            if not isinstance(_first(raised), _Still):
                raise
        # What came in twice may come in late: until every row is settled.
        await until_seen(stage.evidence.settled, LAB_STILL_SECONDS)

    async def _watch(self, stage: Stage) -> None:
        """Read what the sink writes; raise when nothing moves any more."""
        moved, last = (-1, -1), self._clock.monotonic()
        while True:
            await asyncio.to_thread(self._records.look)
            now = self._clock.monotonic()
            at = (len(stage.traffic.accepted), self._records.requests)
            if at != moved:
                moved, last = at, now
            elif now - last > LAB_STILL_SECONDS:
                raise _Still
            self._told(
                Seen(
                    accepted=at[0],
                    arrived=self._records.pairs,
                    faults=len(stage.blows),
                )
            )
            await asyncio.sleep(LAB_LOOK_SECONDS)

    async def _count(self, stage: Stage, took: float) -> Figures:
        plan, records, traffic = self._plan, self._records, stage.traffic
        ends = (node.terminate() for node in stage.nodes if node.process)
        codes = await asyncio.gather(*ends)
        await asyncio.to_thread(records.look)
        totals = await stage.evidence.totals()
        begun = await stage.evidence.begun()
        durations = Durations.from_environment()
        report = await examine(stage.evidence.backend, about=About(durations=durations))
        return Figures(
            plan=plan,
            factor=durations.factor,
            seconds=round(took, 1),
            accepted=len(traffic.accepted),
            asked_again=traffic.asked_again,
            stored=totals.messages,
            requests=records.requests,
            lost=records.missing(set(traffic.accepted.values()), plan.endpoints),
            duplicated=records.repeated,
            quarantined=totals.parked,
            unsettled=totals.unsettled,
            attempts=totals.attempts,
            attempts_lost=totals.attempts_lost,
            unclean=stage.unclean + sum(code != 0 for code in codes),
            faults=as_faults(stage.blows, begun),
            doubled=records.doubled(LAB_SHOWN_MAX),
            findings=tuple(
                f"{fault.code}: {fault.what} ({', '.join(fault.where)})"
                for fault in report.faults[:LAB_SHOWN_MAX]
            ),
        )


class _Still(Exception):
    """Nothing was accepted and nothing arrived for so long that nothing will."""


def _inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what an operator set for a service of theirs."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith("TENURE_") or name == TIME_FACTOR_VARIABLE
    }


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that says most: of ours when there is one."""
    leaves: list[BaseException] = []
    stack: list[BaseException] = [group]
    while stack:
        error = stack.pop()
        if isinstance(error, BaseExceptionGroup):
            stack.extend(error.exceptions)
        else:
            leaves.append(error)
    return next((each for each in leaves if isinstance(each, TenureError)), leaves[0])
