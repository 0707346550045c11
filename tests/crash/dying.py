"""A process that makes many: each receives over HTTP, and one kills itself on the way.

It loads everything once, then forks a child for each line it reads, so that a child
begins in a moment. A line is JSON: where the database is, and at which point of the
accept path to end by SIGKILL. Points are counted, not sampled: `statement` n is the n-th
one of the accept's transaction; `commit` comes after the last, `committed` after the
commit, `answer` before the answer is written; null never.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from tenure.config import load
from tenure.engine import Engine
from tenure.inbox.ledger import receiving
from tenure.server import serving
from tenure.server.app import asgi
from tenure.server.receiving import ReceiptRoute
from tenure.store.tx import Tx

POINT: dict[str, Any] = {}
SEEN = {"armed": False, "statements": 0}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def reached(point: str) -> None:
    if POINT.get("point") == point:
        die()


def arm() -> None:
    """Count the statements of accepts, and end at the point."""
    execute, many, receive = Tx.execute, Tx._many, receiving.receive_batch
    answer = ReceiptRoute.answer

    def count() -> None:
        if SEEN["armed"]:
            if POINT.get("point") == SEEN["statements"]:
                die()
            SEEN["statements"] += 1

    def counted(self: Tx, *args: Any, **named: Any) -> Any:
        count()
        return execute(self, *args, **named)

    def counted_many(self: Tx, *args: Any) -> Any:
        count()
        return many(self, *args)

    def received(*args: Any, **named: Any) -> Any:
        SEEN["armed"], SEEN["statements"] = True, 0
        try:
            return receive(*args, **named)
        finally:
            SEEN["armed"] = False
            reached("commit")

    async def answered(self: ReceiptRoute, *args: Any) -> Any:
        reply = await answer(self, *args)
        reached("answer")
        return reply

    Tx.execute = counted  # pyright: ignore[reportAttributeAccessIssue]
    Tx._many = counted_many  # pyright: ignore[reportAttributeAccessIssue]
    receiving.receive_batch = received
    ReceiptRoute.answer = answered  # pyright: ignore[reportAttributeAccessIssue]


async def serve(settings: dict[str, Any]) -> None:
    engine = Engine(load(settings, environ={}))
    await engine.start()
    backend = engine.outbox.acceptor._backend

    class Committed:
        def __getattr__(self, name: str) -> Any:
            return getattr(backend, name)

        async def write(self, *args: Any, **named: Any) -> Any:
            done = await backend.write(*args, **named)
            reached("committed")
            return done

    engine.outbox.acceptor._backend = Committed()  # pyright: ignore[reportAttributeAccessIssue]
    running = await serving.start(asgi(engine))
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    print(json.dumps({"url": running.url, "pid": os.getpid()}), flush=True)
    await ended.wait()
    await running.stop()
    await engine.stop()
    print(json.dumps({"statements": SEEN["statements"]}), flush=True)


def main() -> None:
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            POINT.update(asked)
            arm()
            asyncio.run(serve(asked["settings"]))
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(json.dumps({"ended": status}), flush=True)


if __name__ == "__main__":
    main()
