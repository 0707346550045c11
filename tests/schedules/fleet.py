"""Nodes of several releases over one database, without loops: each step is a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tenure.ids import NodeId, TenantId
from tenure.naming.coordinates import Coordinate, parse_coordinate
from tenure.schedules.calendar.model import encode
from tenure.schedules.calendar.parsing import parse_schedule
from tenure.schedules.ledger import catalogue, ticking
from tenure.schedules.ledger.catalogue import Enrolled
from tenure.schedules.ledger.ticking import Ticked
from tenure.schedules.model import Definition, JobSettings
from tenure.store import nodes
from tenure.store.backend import Backend
from tenure.store.tx import Tx
from tests.invariants import faults

TENANT = TenantId("default")
DAY_US = 86_400_000_000
Release = Mapping[Coordinate, Definition]


def definition(
    name: str, *, formerly: tuple[str, ...] = (), **timing: Any
) -> Definition:
    """A job `package:name` that fires each day unless it says otherwise."""
    at = parse_coordinate(name)
    settings = timing.pop("settings", JobSettings())
    return Definition(
        package=at.package,
        name=at.name,
        formerly=formerly,
        schedule=encode(parse_schedule(**(timing or {"every": "1d"}))),
        settings=settings,
    )


def release(*definitions: Definition) -> Release:
    return {each.coordinate: each for each in definitions}


@dataclass
class Fleet:
    """The nodes that are open, by the names that a test gives them."""

    backend: Backend
    nodes: dict[str, NodeId] = field(default_factory=dict[str, NodeId])
    releases: dict[str, Release] = field(default_factory=dict[str, Release])

    async def start(self, name: str, said: Release) -> Enrolled:
        """Open a node of this release, in place of the one of this name."""
        await self.stop(name)
        self.nodes[name] = await self.backend.write(open_node)
        self.releases[name] = said
        return await self.enrol(name)

    async def enrol(self, name: str) -> Enrolled:
        return await self.backend.write(lambda tx: self.enrol_in(tx, name))

    def enrol_in(self, tx: Tx, name: str) -> Enrolled:
        return catalogue.enrol(tx, self.nodes[name], TENANT, self.releases[name])

    async def stop(self, name: str) -> None:
        node = self.nodes.pop(name, None)
        if node is not None:
            await self.backend.write(lambda tx: nodes.close_node(tx, node, "test"))

    async def tick(self, name: str) -> Ticked:
        return await self.backend.write(lambda tx: self.tick_in(tx, name))

    def tick_in(self, tx: Tx, name: str) -> Ticked:
        return ticking.tick(tx, self.nodes[name])

    async def rows(self, sql: str) -> list[dict[str, Any]]:
        found = await self.backend.read(lambda tx: tx.all(sql))
        return [dict(row._mapping) for row in found]

    async def keys(self) -> dict[str, str]:
        found = await self.rows(
            "SELECT package, key FROM job WHERE key IS NOT NULL AND package IS NOT NULL"
        )
        return {row["package"]: row["key"] for row in found}

    async def pass_to_next(self) -> int:
        """Let time pass to the earliest next window; return its instant."""
        (row,) = await self.rows("SELECT min(nominal_at) AS at FROM job")
        now = await self.backend.read(lambda tx: tx.now)
        self.backend.clock_offset_us += row["at"] - now + 1_000
        at: int = row["at"]
        return at

    async def fired(self) -> tuple[int, int, int]:
        """Return how many windows, runs and work rows there are; all must be sound."""
        assert await self.backend.read(faults) == []
        (row,) = await self.rows(
            "SELECT (SELECT count(*) FROM job_window WHERE state <> 'skipped') AS w,"
            " (SELECT count(*) FROM job_run) AS r,"
            " (SELECT count(*) FROM work WHERE kind = 'job') AS k"
        )
        return row["w"], row["r"], row["k"]


def open_node(tx: Tx) -> NodeId:
    return nodes.open_node(
        tx, name="n", host="h", pid=1, version="t", serves="", lock_path=None
    )
