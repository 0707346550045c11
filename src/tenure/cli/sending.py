"""`tenure send`: one message to one URL, from nothing, and what came back."""

import hashlib
import json
from typing import Annotated, Any, Final

import msgspec
import typer

from tenure.cli.access import Api
from tenure.cli.endpoints import application, create_endpoint
from tenure.cli.explaining import MOVING, NOBODY, tell_nobody
from tenure.cli.hints import ADDRESS_REFUSED, allowing
from tenure.cli.screen import Screen, when
from tenure.cli.verbs import Call, verb
from tenure.cli.verifying import body_of
from tenure.cli.waiting import watch
from tenure.errors import EXIT_REFUSED, EXIT_UNAVAILABLE
from tenure.limits import LIST_MAX, SEND_WAIT_SECONDS

APP: Final = "cli"


def add(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    verb(app, "send")(send)


def send(
    call: Call,
    url: Annotated[str, typer.Argument(help="Where to: http or https.")],
    body: Annotated[
        str,
        typer.Argument(help="What: JSON or any text, @FILE, or - for stdin."),
    ],
    event_type: Annotated[str, typer.Option(help="Kind of message.")] = "cli.message",
    app: Annotated[
        str, typer.Option("--app", help="Application; made when it does not exist.")
    ] = APP,
    wait: Annotated[
        float, typer.Option("--wait-seconds", min=0, help="For the first answer.")
    ] = SEND_WAIT_SECONDS,
) -> None:
    """Send a signed message to a URL and say what came back, or why it waits.

    Ends with 0 when it was delivered, 69 when it was accepted and waits, 1 when it
    failed for good.
    """
    content = body_of(body)
    api = call.api()
    owner = application(api, app)
    channel = channel_of(url)
    endpoint = _endpoint(api, owner["id"], url, channel)
    root = f"/api/v1/app/{owner['id']}/msg"
    message = api.post(root, message_of(event_type, channel, content))
    if not call.screen.as_json:
        call.screen.line(f"accepted {message['id']} for {endpoint['id']}")

    def look() -> Any:
        found = api.get(f"{root}/{message['id']}/explain")
        return next(d for d in found["deliveries"] if d["endpointId"] == endpoint["id"])

    delivery, _ = watch(look, _settled, seconds=wait)
    if call.screen.as_json:
        call.screen.json(
            {"message": message["id"], "endpoint": endpoint["id"]} | delivery
        )
    else:
        _tell(call.screen, delivery, url, message["id"])
    raise typer.Exit(_exit_code(delivery))


def channel_of(url: str) -> str:
    """Return the channel that only this URL's endpoint listens to."""
    return "to-" + hashlib.sha256(url.encode()).hexdigest()[:32]


def _endpoint(api: Api, app: str, url: str, channel: str) -> Any:
    for found in api.pages(f"/api/v1/app/{app}/endpoint", LIST_MAX):
        if found["channels"] == [channel]:
            return found
    given = {
        "url": url,
        "channels": [channel],
        "description": "made by `tenure send`",
    }
    return create_endpoint(api, app, given)


def message_of(event_type: str, channel: str, content: bytes) -> bytes:
    """Return the request that has exactly these bytes delivered."""
    envelope: dict[str, Any] = {"eventType": event_type, "channels": [channel]}
    is_json = _is_json(content)
    if is_json and content.lstrip()[:1] == b"{":
        envelope["payload"] = msgspec.Raw(content)
    else:
        kind = "application/json" if is_json else "text/plain; charset=utf-8"
        envelope["payload"] = {}
        envelope["transformationsParams"] = {
            "rawPayload": content.decode(errors="replace"),
            "headers": {"content-type": kind},
        }
    return msgspec.json.encode(envelope)


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True


def _settled(delivery: Any) -> bool:
    """Tell whether looking on would show nothing new soon."""
    return bool(delivery["attempts"]) or delivery["code"] not in MOVING


def _tell(screen: Screen, delivery: Any, url: str, message: str) -> None:
    attempt = delivery["attempts"][-1] if delivery["attempts"] else None
    if delivery["state"] == "succeeded":
        status = attempt["statusCode"] if attempt else "success"
        screen.line(f"delivered: {url} answered {status}", style="green")
        return
    if attempt is None:
        screen.line(f"waits: {delivery['why']}", style="yellow")
        if delivery["code"] in NOBODY:
            tell_nobody(screen)
    else:
        screen.line(f"failed: {_came(attempt)}", style="red")
        if attempt["cause"] == ADDRESS_REFUSED:
            screen.note(f"to allow it, {allowing(url)}")
        if delivery["nextAt"]:
            screen.line(f"next attempt at {when(delivery['nextAt'])}")
    screen.note(f"`tenure explain {message}` says how it stands")


def _came(attempt: Any) -> str:
    came = str(attempt["statusCode"] or attempt["cause"] or attempt["outcome"])
    reason = attempt["reason"]
    return came if reason in {None, came} else f"{came}: {reason}"


def _exit_code(delivery: Any) -> int:
    match delivery["state"]:
        case "succeeded":
            return 0
        case "ready" | "claimed":
            return EXIT_UNAVAILABLE
        case _:
            return EXIT_REFUSED
