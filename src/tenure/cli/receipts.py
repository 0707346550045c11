"""`tenure receipts`: what arrived."""

import base64
from typing import Annotated, Any

import typer

from tenure.cli import options
from tenure.cli.screen import when
from tenure.cli.verbs import Call, verb

receipts = typer.Typer(help="What arrived at sources.", no_args_is_help=True)

Ref = Annotated[str, typer.Argument(metavar="RECEIPT", help="rcpt_….")]


@verb(receipts, "list")
def list_receipts(
    call: Call,
    source: Annotated[
        str | None, typer.Option(help="Of one source: src_… or its uid.")
    ] = None,
    limit: options.Limit = 50,
) -> None:
    """List receipts, newest first."""
    found = list(call.api().pages("/api/v1/receipt", limit, source=source))
    if call.screen.as_json:
        call.screen.json(found)
        return
    call.screen.table(
        ("RECEIPT", "RECEIVED", "EVENT TYPE", "EVENT ID", "BYTES", "MESSAGE"),
        [
            (
                each["id"],
                when(each["receivedAt"]),
                each["eventType"],
                each["eventId"] or "",
                each["size"],
                each["messageId"] or f"{each['messages']} messages",
            )
            for each in found
        ],
        empty="nothing has arrived: `tenure sources list` shows where it would",
    )


@verb(receipts, "show")
def show(call: Call, ref: Ref) -> None:
    """Show a receipt: its header lines, its bytes, what became of it."""
    found = call.api().get(f"/api/v1/receipt/{ref}")
    if call.screen.as_json:
        call.screen.json(found)
        return
    call.screen.facts(
        {
            "receipt": found["id"],
            "source": found["sourceId"],
            "received": when(found["receivedAt"]),
            "event type": found["eventType"],
            "event id": found["eventId"],
            "from": found["address"],
            "request": f"{found['method']} {found['query']}".strip(),
            "messages": ", ".join(found["messageIds"]) or "none",
        }
    )
    for name, value in found["headers"]:
        call.screen.line(f"{name}: {value}")
    call.screen.line("")
    call.screen.line(_body(found["body"]))
    for message in found["messageIds"]:
        call.screen.note(f"`tenure explain {message}` says where it went and why")


def _body(encoded: Any) -> str:
    if encoded is None:
        return "(the bytes were expunged)"
    return base64.b64decode(encoded).decode("utf-8", "replace")


@verb(receipts, "replay")
def replay(
    call: Call,
    ref: Ref,
    endpoint: Annotated[
        str | None, typer.Option(help="Only to this one: ep_… or its uid.")
    ] = None,
) -> None:
    """Hand a receipt on again."""
    body = {"endpointId": endpoint}
    done = call.api().post(f"/api/v1/receipt/{ref}/replay", body)["data"]
    if call.screen.as_json:
        call.screen.json(done)
        return
    for each in done:
        call.screen.line(f"{each['workId']}: {each['answer']}")
    if not done:
        call.screen.line("no endpoint gets it")
