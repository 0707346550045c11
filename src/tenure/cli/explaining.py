"""`tenure explain`: why something waits, and what already happened to it."""

from typing import Annotated, Any, Final

import typer

from tenure.cli import options
from tenure.cli.runs import show_run
from tenure.cli.screen import Screen, when
from tenure.cli.verbs import Call, verb
from tenure.ids import Prefix

MOVING: Final = frozenset({"due", "in_flight"})
"""Codes of an explanation that change by themselves within moments."""
NOBODY: Final = frozenset({"no_capable_node", "holder_silent"})
"""Codes that wait for a node."""

Ref = Annotated[
    str, typer.Argument(metavar="MESSAGE|WORK|RUN", help="msg_…, wrk_… or run_….")
]


def add(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    verb(app, "explain")(explain)


def explain(call: Call, ref: Ref, app: options.App = None) -> None:
    """Say why each endpoint matched or not, what came back, and why it waits now."""
    if ref.startswith(f"{Prefix.RUN}_"):
        show_run(call, ref)
        return
    path = f"/explain/{ref}" if app is None else f"/app/{app}/msg/{ref}/explain"
    found = call.api().get(f"/api/v1{path}")
    if call.screen.as_json:
        call.screen.json(found)
        return
    show(call.screen, found)
    if any(delivery["code"] in NOBODY for delivery in found["deliveries"]):
        tell_nobody(call.screen)


def tell_nobody(screen: Screen) -> None:
    """Say what to do when nothing goes out because no node is there."""
    screen.note("is a server running? `tenure serve` starts one", style="yellow")


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
    reason = attempt["reason"] or ""
    if reason in {came, f"status_{status}"}:
        reason = ""
    parts = (
        f"{attempt['number']}  {when(attempt['timestamp'])}  {attempt['outcome']}",
        came,
        reason,
        f"next {when(attempt['nextAttempt'])}" if attempt["nextAttempt"] else "",
    )
    return "  ".join(part for part in parts if part)
