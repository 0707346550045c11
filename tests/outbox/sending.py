"""One node by hand: claims, sends through the real client, settles when told to."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from tenure.clock import US, SystemClock
from tenure.ids import NodeId, new_attempt_id
from tenure.kernel.commands import Answer, Parked, Settlement
from tenure.outbox.delivery import Delivery
from tenure.outbox.http import HttpTransport
from tenure.outbox.http.model import Transport
from tenure.outbox.keyring import KeyRing
from tenure.outbox.model import OutboxSettings
from tenure.store import claims, nodes
from tenure.store.backend import Backend
from tenure.store.claims import Claimed, Walker
from tenure.store.tx import Tx
from tenure.work.kinds import Loaded, Prepared, Ran
from tests.invariants import faults
from tests.outbox.http.servers import LOOPBACK, Names

LOCAL = OutboxSettings(allow_networks=LOOPBACK)
SERVES = frozenset({"delivery"})


@dataclass
class Permit:
    """A guard that says yes until it is told otherwise."""

    deadline: float
    deadline_at: int = 0
    yes: bool = True
    asked: int = 0

    def may_begin(self) -> bool:
        self.asked += 1
        return self.yes

    def instant(self) -> int:
        left = self.deadline - SystemClock().monotonic()
        return self.deadline_at - round(left * US)


@dataclass
class Sender:
    """A node of the test's own; nothing happens unless it is called."""

    backend: Backend
    kind: Delivery
    node: NodeId
    walker: Walker
    clock: SystemClock = field(default_factory=SystemClock)

    async def claim(self, want: int = 100) -> list[Claimed]:
        got = await self.backend.write(
            lambda tx: self.walker.claim(tx, want, busy={}, lane_max=want)
        )
        return list(got.claimed)

    async def load(self, claimed: list[Claimed]) -> list[Loaded]:
        return list(await self.backend.read(lambda tx: self.kind.load(tx, claimed)))

    def permit(self, claimed: Claimed, *, yes: bool = True) -> Permit:
        """A guard whose deadline is the claim's, by this process's clock."""
        left = claimed.deadline_us / US
        assert claimed.work.deadline_at is not None
        return Permit(
            deadline=self.clock.monotonic() + left,
            deadline_at=claimed.work.deadline_at,
            yes=yes,
        )

    async def send(self, claimed: Claimed, permit: Permit | None = None) -> Ran:
        """Load and run one claim; a row that cannot run is answered as parked."""
        (loaded,) = await self.load([claimed])
        if isinstance(loaded, Parked):
            return Ran(result=loaded)
        return await self.kind.run(loaded, permit or self.permit(claimed))

    def settlement(self, claimed: Claimed, ran: Ran) -> Settlement:
        now = self.clock.wall_us()
        return Settlement(
            work=claimed.work.id,
            claim=claimed.work.claim,
            node=self.node,
            lane=claimed.work.lane,
            kind=claimed.work.kind,
            order_key=claimed.work.order_key,
            attempt=new_attempt_id(),
            begun_at=now,
            ended_at=now,
            result=ran.result,
            evidence=ran.evidence,
        )

    async def settle(self, claimed: Claimed, ran: Ran) -> Answer:
        said = self.settlement(claimed, ran)
        kinds = {self.kind.name: self.kind}
        (answer,) = await self.backend.write(
            lambda tx: claims.settle(tx, [said], kinds)
        )
        return answer

    async def work_off(self) -> list[Ran]:
        """Claim what is due, send and settle it, one after the other."""
        done: list[Ran] = []
        for claimed in await self.claim():
            ran = await self.send(claimed)
            await self.settle(claimed, ran)
            done.append(ran)
        return done

    async def lose(self) -> None:
        """Close this node as dead for certain and let its rows be taken back."""

        def close(tx: Tx) -> None:
            nodes.close_node(tx, self.node, claims.CERTAIN)
            claims.sweep(tx)

        await self.backend.write(close)


async def open_sender(
    backend: Backend,
    ring: KeyRing,
    transport: Transport,
    settings: OutboxSettings = LOCAL,
    *,
    name: str = "node-a",
) -> Sender:
    """Open a node that sends through this transport."""
    node = await backend.write(
        lambda tx: nodes.open_node(
            tx,
            name=name,
            host="test",
            pid=1,
            version="0",
            serves="delivery",
            lock_path=None,
        )
    )
    clock = SystemClock()
    kind = Delivery(
        transport=transport,
        ring=ring,
        settings=settings,
        clock=clock,
        user_agent="Tenure/test",
    )
    walker = Walker(node=node, serves=SERVES)
    return Sender(backend=backend, kind=kind, node=node, walker=walker, clock=clock)


@asynccontextmanager
async def sending(
    backend: Backend, ring: KeyRing, settings: OutboxSettings = LOCAL
) -> AsyncGenerator[Sender]:
    """A sender with the real HTTP client."""
    transport = HttpTransport(resolver=Names())
    try:
        yield await open_sender(backend, ring, transport, settings)
        assert await backend.read(faults) == []
    finally:
        await transport.aclose()


def prepared(loaded: Loaded) -> Prepared:
    assert isinstance(loaded, Prepared)
    return loaded


def local(**changes: object) -> OutboxSettings:
    """Settings that let the loopback be dialled."""
    return replace(LOCAL, **changes)  # pyright: ignore[reportArgumentType]
