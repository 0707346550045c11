"""Endpoints of the kind `chat`: Apprise posts to the service, in a thread of ours.

Apprise opens its own connections, so the address rules of the HTTP client hold for none
of them. Only services are taken whose host is their own (`naming.SERVICES`), redirects
are not followed, and nothing in a URL can name a file or another host. Not guaranteed:
that what the host's name resolves to is public, and that a post which is given up at the
deadline does not arrive after all.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tenure.limits import CHAT_TEXT, CHAT_THREADS
from tenure.outbox.carriers.answers import Stopwatch
from tenure.outbox.carriers.naming import SERVICES
from tenure.outbox.carriers.showing import chat_text
from tenure.outbox.carriers.threads import NotBegunError, Threads

if TYPE_CHECKING:
    from collections.abc import Collection

    from tenure.clock import Clock
    from tenure.outbox.carriers.model import Carried, Job
    from tenure.work.kinds import Guard

_CONNECT_SECONDS: Final = 5.0  # of a deadline that is usually longer
_AROUND: Final = 200  # characters of a text beside the body


class ChatCarrier:
    """Posts through Apprise, at most `CHAT_THREADS` at a time."""

    __slots__ = ("_clock", "_services", "_threads")

    def __init__(self, clock: Clock, services: Collection[str] = SERVICES) -> None:
        self._clock: Final = clock
        self._services: Final = frozenset(services)
        self._threads: Final = Threads(CHAT_THREADS, name="chat")

    async def carry(self, job: Job, guard: Guard, number: int) -> Carried:
        """See `Carrier`."""
        del number
        watch = Stopwatch(self._clock, "CHAT")
        url = job.target.secret_url or ""
        scheme = url.partition("://")[0]
        if scheme not in self._services:
            return watch.stopped(f"no chat service of this node is named {scheme!r}")
        try:
            async with asyncio.timeout(_left(guard, self._clock)):
                service = await self._threads.run(partial(_service, url), _always)
                if isinstance(service, str):
                    return watch.failed("chat", service)
                left = _left(guard, self._clock)
                post = partial(_post, service, job, left)
                taken = await self._threads.run(post, guard.may_begin)
        except NotBegunError:
            return watch.fenced()
        except TimeoutError:
            return watch.failed("timeout", "the service was too slow", phase="post")
        except Exception as error:  # noqa: BLE001 - a client's fault is a failure too
            return watch.failed(
                "chat", type(error).__name__
            )  # its text may hold the URL
        return watch.done() if taken else watch.failed("chat", "it was not taken")

    def close(self) -> None:
        """Take nothing more; posts under way end by themselves."""
        self._threads.close()


def _always() -> bool:
    return True


def _left(guard: Guard, clock: Clock) -> float:
    return max(0.0, guard.deadline - clock.monotonic())


def _service(url: str) -> Any:
    """Return Apprise's client of this URL, or why there is none; in a thread."""
    try:
        import apprise
    except ImportError:
        return "chat services need the extra: pip install tenure[chat]"
    # Nothing is stored by it, nothing is fetched, nothing leads elsewhere.
    asset = apprise.AppriseAsset(
        secure_logging=True, http_redirects=False, async_mode=False
    )
    found: Any = apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
    return found or "the service cannot read its URL"


def _post(service: Any, job: Job, left: float) -> bool:
    """Post one message; in a thread."""
    service.socket_connect_timeout = min(_CONNECT_SECONDS, left)
    service.socket_read_timeout = left
    room = min(CHAT_TEXT, max(_AROUND, int(service.body_maxlen) - _AROUND))
    return bool(service.notify(body=chat_text(job, room), body_format="markdown"))
