"""`tenure listen`: receipts as they arrive, forwarded to a developer's machine.

The cursor is kept under a name where receipts are stored, after each was shown and
forwarded: whatever happens to this command, the next one goes on there.
"""

import base64
import http.client
import select
import sys
import threading
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from tenure.cli.access import Api
from tenure.cli.screen import Screen, when
from tenure.cli.verbs import Call, verb
from tenure.clock import SystemClock
from tenure.errors import BadRequest, NotFound, ServerUnreachable
from tenure.limits import CLIENT_SECONDS, LISTEN_RETRY_SECONDS, LISTEN_TURN_SECONDS

__all__ = ["add"]

_DROPPED: Final = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_MASK: Final = "***"
KEYS: Final = "keys: r replays the last one, o shows where it is, q ends"


def add(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    verb(app, "listen")(listen)


def listen(
    call: Call,
    source: Annotated[
        str | None, typer.Option(help="Only what arrives there: src_… or its uid.")
    ] = None,
    forward: Annotated[
        str | None, typer.Option(help="POST each receipt to this URL.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="Under which the cursor is kept; unset: one for each source and type."
        ),
    ] = None,
    begin: Annotated[
        str | None,
        typer.Option("--from", help="A cursor to begin at instead of the kept one."),
    ] = None,
    event_type: Annotated[
        str | None, typer.Option("--type", help="Only these: invoice.*")
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, help="End after so many receipts.")
    ] = None,
) -> None:
    """Show receipts as they arrive, and forward them to a URL.

    What arrives while nobody listens is shown at the next start: nothing is skipped.
    """
    api, screen = call.api(), call.screen
    target = None if forward is None else _Target(forward)
    name = name or _name(api, source, event_type)
    cursor = begin or _kept(api, name)
    listener = f"/api/v1/listener/{name}"
    api.put(listener, {"cursor": cursor})
    keyed = sys.stdin.isatty() and not screen.as_json
    if not screen.as_json:
        screen.note(f"listening as {name!r}; {KEYS if keyed else 'Ctrl-C ends'}")
    last: Any = None
    shown = 0
    while count is None or shown < count:
        found = _next(api, screen, cursor, source)
        for each in found["data"]:
            if event_type is None or fnmatchcase(each["eventType"], event_type):
                _tell(screen, each, None if target is None else target.send(each))
                last, shown = each, shown + 1
            cursor = each["cursor"]
            api.put(listener, {"cursor": cursor})
            if count is not None and shown >= count:
                break
        if keyed and not _keys(screen, last, target):
            return


def _name(api: Api, source: str | None, event_type: str | None) -> str:
    """Return a name that no listener to anything else moves on."""
    parts = ["listen"]
    if source is not None:
        parts.append(api.get(f"/api/v1/source/{source}")["id"])
    if event_type is not None:
        parts.append(event_type.encode().hex()[:40])
    return "-".join(parts)


def _kept(api: Api, name: str) -> str:
    try:
        cursor: str = api.get(f"/api/v1/listener/{name}")["cursor"]
    except NotFound:
        cursor = api.get("/api/v1/receipt/next")["cursor"]
    return cursor


def _next(api: Api, screen: Screen, cursor: str, source: str | None) -> Any:
    """Ask for what is next; a server that is away is waited for."""
    told = False
    while True:
        try:
            return api.get(
                "/api/v1/receipt/next",
                cursor=cursor,
                source=source,
                wait=LISTEN_TURN_SECONDS,
            )
        except ServerUnreachable as error:
            if not told:
                screen.note(f"{error}; waiting for it", style="yellow")
            told = True
            threading.Event().wait(LISTEN_RETRY_SECONDS)


def _tell(screen: Screen, receipt: Any, answered: dict[str, Any] | None) -> None:
    if screen.as_json:
        screen.json(receipt | {"forwarded": answered})
        return
    end = ""
    if answered is not None:
        end = f" → {answered['status'] or answered['error']} {answered['ms']} ms"
    screen.line(
        f"{when(receipt['receivedAt'])} {receipt['eventType']} {receipt['id']}{end}"
    )


def _keys(screen: Screen, last: Any, target: "_Target | None") -> bool:
    """Do what was typed meanwhile; False says that it is enough."""
    while select.select([sys.stdin], [], [], 0)[0]:
        match sys.stdin.readline().strip():
            case "q":
                return False
            case "r" if last is not None and target is not None:
                _tell(screen, last, target.send(last))
            case "o" if last is not None:
                screen.line(f"tenure receipts show {last['id']}")
            case _:
                screen.note(f"{KEYS}, each with Enter")
    return True


class _Target:
    """Where receipts are forwarded to."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise BadRequest(f"--forward {url!r} is no http or https URL")
        self._parts: Final = parts
        self._clock: Final = SystemClock()

    def send(self, receipt: Any) -> dict[str, Any]:
        """Forward a receipt; a failure is told, never raised."""
        began = self._clock.monotonic()
        status, error = None, None
        try:
            status = self._sent(receipt)
        except (OSError, http.client.HTTPException, ValueError) as failed:
            error = str(failed) or type(failed).__name__
        took = round((self._clock.monotonic() - began) * 1000)
        return {"status": status, "error": error, "ms": took}

    def _sent(self, receipt: Any) -> int:
        parts = self._parts
        kind = (
            http.client.HTTPSConnection
            if parts.scheme == "https"
            else http.client.HTTPConnection
        )
        connection = kind(parts.hostname or "", parts.port, timeout=CLIENT_SECONDS)
        query = "&".join(each for each in (parts.query, receipt["query"]) if each)
        target = (parts.path or "/") + (f"?{query}" if query else "")
        body = base64.b64decode(receipt["body"] or "")
        try:
            connection.putrequest(receipt["method"], target, skip_accept_encoding=True)
            for header, value in receipt["headers"]:
                if header.lower() not in _DROPPED and value != _MASK:
                    connection.putheader(header, value.encode("latin-1"))
            connection.putheader("tenure-receipt", receipt["id"])
            connection.putheader("content-length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            answer.read(65_536)
            return answer.status
        finally:
            connection.close()
