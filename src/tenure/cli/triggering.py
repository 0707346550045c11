"""`tenure trigger`: a signed sample, as a provider would send it."""

import http.client
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from tenure.cli.verbs import Call, verb
from tenure.clock import SystemClock
from tenure.errors import EXIT_REFUSED, BadRequest, ServerUnreachable
from tenure.limits import CLIENT_SECONDS

__all__ = ["add"]


def add(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    verb(app, "trigger")(trigger)


def trigger(
    call: Call,
    name: Annotated[
        str,
        typer.Argument(
            metavar="EVENT",
            help="PRESET.EVENT, such as stripe.invoice.paid or github.push.",
        ),
    ],
    source: Annotated[
        str | None,
        typer.Option(help="Let it arrive at this source, signed with its secret."),
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="POST it here instead, signed with --secret.")
    ] = None,
    secret: Annotated[
        str | None, typer.Option(envvar="TENURE_TRIGGER_SECRET", help="For --url.")
    ] = None,
) -> None:
    """Send a signed sample of a provider's event, and say what was answered."""
    preset, _, event = name.partition(".")
    if not event:
        raise BadRequest(f"{name!r} names no event: write PRESET.EVENT")
    if (source is None) == (url is None):
        raise BadRequest("give --source SOURCE, or --url URL with --secret")
    if url is None:
        told = _through(call, str(source), preset, event)
    else:
        told = _posted(preset, event, url, secret or "")
    if call.screen.as_json:
        call.screen.json(told)
    else:
        call.screen.line(f"{told['status']} {told['body']}".strip())
    if not 200 <= told["status"] <= 299:
        raise typer.Exit(EXIT_REFUSED)


def _through(call: Call, source: str, preset: str, event: str) -> Any:
    api = call.api()
    found = api.get(f"/api/v1/source/{source}")
    if found["verification"]["preset"] != preset:
        raise BadRequest(
            f"{source} verifies {found['verification']['preset']}, not {preset}"
        )
    return api.post(f"/api/v1/source/{found['id']}/trigger", {"event": event})


def _posted(preset: str, event: str, url: str, secret: str) -> Any:
    from tenure.inbox.samples import sample

    made = sample(preset, event, secret, url=url, now_us=SystemClock().wall_us())
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise BadRequest(f"{url!r} is no http or https URL")
    kind = (
        http.client.HTTPSConnection
        if parts.scheme == "https"
        else http.client.HTTPConnection
    )
    connection = kind(parts.hostname, parts.port, timeout=CLIENT_SECONDS)
    target = parts._replace(scheme="", netloc="").geturl() or "/"
    try:
        connection.request("POST", target, made.body, dict(made.headers))
        answer = connection.getresponse()
        text = answer.read(2000).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        raise ServerUnreachable(f"no answer from {url}: {error}") from None
    finally:
        connection.close()
    receipt = answer.getheader("tenure-receipt")
    return {"status": answer.status, "receiptId": receipt, "body": text}
