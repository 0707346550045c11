"""`tenure explain`: why something waits, and what already happened to it."""

from contextlib import suppress
from typing import Annotated, Any, Final

import typer

from tenure.cli import options
from tenure.cli.access import Api, find_app
from tenure.cli.screen import Screen, when
from tenure.cli.verbs import Call, verb
from tenure.clock import US, SystemClock, from_rfc3339
from tenure.errors import Forbidden
from tenure.limits import BEAT_SECONDS

MOVING: Final = frozenset({"due", "in_flight"})
"""Codes of an explanation that change by themselves within moments."""
SILENT_SECONDS: Final = 3 * BEAT_SECONDS
"""One beat may be late, and clocks differ a little; three missing ones mean something."""

Ref = Annotated[str, typer.Argument(metavar="MESSAGE|WORK", help="msg_… or wrk_….")]


def add(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    verb(app, "explain")(explain)


def explain(call: Call, ref: Ref, app: options.App = None) -> None:
    """Say why each endpoint matched or not, what came back, and why it waits now."""
    _, found = find_app(call.api(), app, f"/msg/{ref}/explain")
    if call.screen.as_json:
        call.screen.json(found)
        return
    show(call.screen, found)
    if any(delivery["code"] in MOVING for delivery in found["deliveries"]):
        tell_silence(call.screen, call.api())


def tell_silence(screen: Screen, api: Api) -> None:
    """Say so when work is due and every node that could take it has gone silent.

    A node that was killed stays open until another one closes it; when it was the last
    one, nobody does.
    """
    with suppress(Forbidden):  # a key of one application sees no nodes
        nodes = api.get("/api/v1/node")["data"]
        now = SystemClock().wall_us()
        heard = [from_rfc3339(n["beatAt"]) for n in nodes if n["state"] == "open"]
        silent = (now - max(heard)) / US if heard else None
        if silent is None or silent > SILENT_SECONDS:
            last = "" if silent is None else f" for {silent:.0f} s"
            screen.line(
                f"no node has been heard{last}: is a server running? `tenure serve`"
                " starts one",
                style="yellow",
            )


def show(screen: Screen, found: Any) -> None:
    """Print an explanation."""
    message = found["message"]
    screen.line(
        f"{message['id']}  {message['eventType']}  accepted"
        f" {when(message['timestamp'])}"
    )
    for delivery in found["deliveries"]:
        screen.line()
        screen.line(f"to {delivery['endpointId']}  {delivery['url']}", style="bold")
        screen.line(f"  {delivery['state']}: {delivery['why']}")
        if delivery["nextAt"]:
            screen.line(f"  next: {when(delivery['nextAt'])}")
        screen.line(f"  rule: {delivery['rule']}")
        screen.line(f"  work: {delivery['workId']}")
        for attempt in delivery["attempts"]:
            screen.line(f"  attempt {_attempt(attempt)}")
    for endpoint in found["unmatched"]:
        screen.line()
        name = endpoint["endpointId"]
        where = f"not to {name}  {endpoint['url']}" if name else "to nobody"
        screen.line(f"{where}: {endpoint['reason']}")


def _attempt(attempt: Any) -> str:
    status = attempt["statusCode"]
    came = f"status {status}" if status else attempt["cause"] or ""
    parts = (
        f"{attempt['number']}  {when(attempt['timestamp'])}  {attempt['outcome']}",
        came,
        attempt["reason"] or "",
        f"next {when(attempt['nextAttempt'])}" if attempt["nextAttempt"] else "",
    )
    return "  ".join(part for part in parts if part)
