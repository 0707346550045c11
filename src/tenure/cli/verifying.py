"""`tenure verify`: why a signature does not hold."""

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from tenure.cli.verbs import Call, verb
from tenure.clock import US, SystemClock
from tenure.errors import EXIT_REFUSED, BadRequest, ValidationFailed

__all__ = ["add", "body_of"]

STDIN: Final = "-"


def body_of(text: str) -> bytes:
    """Return the bytes that an argument means: itself, `@FILE`, or `-` for stdin."""
    if text == STDIN:
        return sys.stdin.buffer.read()
    if not text.startswith("@"):
        return text.encode(errors="surrogateescape")
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        raise BadRequest(f"{text[1:]} cannot be read: {error.strerror}") from None


def add(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    verb(app, "verify", asks=False)(verify)


def verify(
    call: Call,
    body: Annotated[
        str, typer.Argument(help="The body as received: text, @FILE or - for stdin.")
    ],
    secret: Annotated[
        str,
        typer.Option(envvar="TENURE_VERIFY_SECRET", help="whsec_…, or a provider's."),
    ],
    header: Annotated[
        list[str],
        typer.Option("--header", "-H", help="'name: value'; give all of them."),
    ],
    at: Annotated[
        float | None,
        typer.Option(help="When it was received, in Unix seconds; unset: now."),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="Whose request it is: github, stripe, …; unset: Tenure's."),
    ] = None,
    url: Annotated[
        str, typer.Option(help="The URL that was called, where a provider signs it.")
    ] = "http://localhost/",
) -> None:
    """Say whether a received request is signed by this secret, and if not, why."""
    now = SystemClock().wall_us() / US if at is None else at
    headers, raw = _headers(header), body_of(body)
    if preset is None:
        found = _diagnosed(secret, headers, raw, now)
    else:
        found = _debugged(preset, secret, headers, raw, url, now)
    good = [code for code, _ in found] == ["verified"]
    if call.screen.as_json:
        call.screen.json(
            {
                "verified": good,
                "findings": [{"code": code, "message": text} for code, text in found],
            }
        )
    for code, text in found:
        call.screen.line(
            f"{code}: {text}", style="green" if code == "verified" else "red"
        )
    if not good:
        raise typer.Exit(EXIT_REFUSED)


def _diagnosed(
    secret: str, headers: dict[str, str], body: bytes, now: float
) -> list[tuple[str, str]]:
    from tenure.outbox.signing import diagnose

    findings = diagnose(secret, headers, body, now_s=now)
    return [(str(each.code), each.message) for each in findings]


def _debugged(
    preset: str, secret: str, headers: dict[str, str], body: bytes, url: str, now: float
) -> list[tuple[str, str]]:
    from tenure.inbox.arrivals import Arrival
    from tenure.inbox.verification import Verification
    from tenure.inbox.verification.debugging import debug

    base, _, query = url.partition("?")
    arrival = Arrival(
        method="POST",
        url=base,
        query=query.encode(),
        headers=tuple(
            (
                name.lower().encode("latin-1", "replace"),
                value.encode("latin-1", "replace"),
            )
            for name, value in headers.items()
        ),
        body=body,
        address=None,
    )
    findings = debug(
        Verification(preset=preset), secret, arrival, now_us=round(now * US)
    )
    return [(str(each.fault), each.message) for each in findings]


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise ValidationFailed.at(
                "header", msg=f"{line!r} has no colon: write 'webhook-id: msg_…'"
            )
        headers[name.strip()] = value.strip()
    return headers
