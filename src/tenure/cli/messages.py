"""`tenure messages`: what was accepted, what came of it, and sending it again."""

from typing import Annotated, Any

import msgspec
import typer

from tenure.cli import options
from tenure.cli.access import APPS_SEARCHED_MAX, Api, find_app
from tenure.cli.screen import when
from tenure.cli.verbs import Call, verb
from tenure.cli.waiting import ticks
from tenure.limits import LIST_MAX, TAIL_SECONDS

messages = typer.Typer(
    help="What was accepted, what came of it, and sending it again.",
    no_args_is_help=True,
)

Ref = Annotated[str, typer.Argument(metavar="MESSAGE", help="msg_… or its event id.")]


def newest(api: Api, app: str | None, most: int) -> list[Any]:
    """Return the newest messages, of one application or of all, newest first."""
    apps = (
        [{"id": app}]
        if app is not None
        else list(api.pages("/api/v1/app", APPS_SEARCHED_MAX))
    )
    found = [
        {"appId": item["id"]} | message
        for item in apps
        for message in api.pages(
            f"/api/v1/app/{item['id']}/msg", most, with_content=False
        )
    ]
    found.sort(key=lambda message: message["id"], reverse=True)
    return found[:most]


@verb(messages, "list")
def list_messages(
    call: Call, app: options.App = None, limit: options.Limit = 20
) -> None:
    """List the newest messages."""
    found = newest(call.api(), app, limit)
    if call.screen.as_json:
        call.screen.json(found)
        return
    call.screen.table(
        ("MESSAGE", "EVENT TYPE", "ACCEPTED", "APPLICATION"),
        [(m["id"], m["eventType"], when(m["timestamp"]), m["appId"]) for m in found],
        empty="no messages yet: `tenure send URL BODY` makes one",
    )


@verb(messages, "show")
def show(call: Call, ref: Ref, app: options.App = None) -> None:
    """Show one message, its endpoints and every attempt."""
    api = call.api()
    app, message = find_app(api, app, f"/msg/{ref}")
    root = f"/api/v1/app/{app}"
    endpoints = list(api.pages(f"{root}/msg/{message['id']}/endpoint", LIST_MAX))
    attempts = list(api.pages(f"{root}/attempt/msg/{message['id']}", LIST_MAX))
    if call.screen.as_json:
        call.screen.json(
            {
                "message": {"appId": app} | message,
                "endpoints": endpoints,
                "attempts": attempts,
            }
        )
        return
    call.screen.facts(
        {
            "message": message["id"],
            "application": app,
            "event type": message["eventType"],
            "event id": message["eventId"],
            "accepted": when(message["timestamp"]),
            "channels": message["channels"],
            "payload": msgspec.json.encode(message["payload"]).decode(),
        }
    )
    call.screen.line()
    call.screen.table(
        ("ENDPOINT", "STATUS", "NEXT ATTEMPT", "URL"),
        [
            (e["id"], e["statusText"], when(e.get("nextAttempt")), e["url"])
            for e in endpoints
        ],
        empty="it goes to no endpoint: `tenure explain` says why",
    )
    call.screen.line()
    call.screen.table(
        ("ATTEMPT", "AT", "ENDPOINT", "OUTCOME", "STATUS", "MS", "WHY"),
        [
            (
                attempt["number"],
                when(attempt["timestamp"]),
                attempt["endpointId"],
                attempt["outcome"],
                attempt["responseStatusCode"] or None,
                attempt["responseDurationMs"],
                attempt["reason"],
            )
            for attempt in attempts
        ],
        empty="no attempt yet: `tenure explain` says why",
    )


@verb(messages, "tail")
def tail(
    call: Call,
    app: options.App = None,
    seconds: Annotated[
        float | None, typer.Option(help="End after so long.", min=0)
    ] = None,
) -> None:
    """Print messages as they are accepted, until Ctrl-C."""
    api = call.api()
    seen = {message["id"] for message in newest(api, app, LIST_MAX)}
    call.screen.note("waiting for messages; Ctrl-C ends", style="dim")
    for _ in ticks(TAIL_SECONDS, seconds):
        fresh = [m for m in newest(api, app, LIST_MAX) if m["id"] not in seen]
        for message in reversed(fresh):
            seen.add(message["id"])
            if call.screen.as_json:
                call.screen.json(message)
            else:
                call.screen.line(
                    f"{when(message['timestamp'])}  {message['id']}"
                    f"  {message['eventType']}  {message['appId']}"
                )


@verb(messages, "resend")
def resend(
    call: Call,
    ref: Ref,
    app: options.App = None,
    endpoint: Annotated[
        str | None, typer.Option(help="Only to this endpoint, by its id or uid.")
    ] = None,
) -> None:
    """Send a message again: the same id, new attempts, nothing erased."""
    api = call.api()
    app, message = find_app(api, app, f"/msg/{ref}")
    root = f"/api/v1/app/{app}/msg/{message['id']}"
    targets = (
        [endpoint]
        if endpoint is not None
        else [e["id"] for e in api.pages(f"{root}/endpoint", LIST_MAX)]
    )
    for target in targets:
        api.post(f"{root}/endpoint/{target}/resend")
    if call.screen.as_json:
        call.screen.json({"message": message["id"], "endpoints": targets})
    elif targets:
        call.screen.line(f"{message['id']} goes again to {', '.join(targets)}")
    else:
        call.screen.note(
            f"{message['id']} went to no endpoint: name one with --endpoint"
        )
