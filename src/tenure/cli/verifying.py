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
        typer.Option(envvar="TENURE_VERIFY_SECRET", help="whsec_…, whsk_… or whpk_…."),
    ],
    header: Annotated[
        list[str],
        typer.Option("--header", "-H", help="'name: value'; give all three."),
    ],
    at: Annotated[
        float | None,
        typer.Option(help="When it was received, in Unix seconds; unset: now."),
    ] = None,
) -> None:
    """Say whether a received request is signed by this secret, and if not, why."""
    from tenure.outbox.signing import FindingCode, diagnose

    now = SystemClock().wall_us() / US if at is None else at
    findings = diagnose(secret, _headers(header), body_of(body), now_s=now)
    good = [finding.code for finding in findings] == [FindingCode.VERIFIED]
    if call.screen.as_json:
        call.screen.json(
            {
                "verified": good,
                "findings": [
                    {"code": str(finding.code), "message": finding.message}
                    for finding in findings
                ],
            }
        )
    for finding in findings:
        style = "green" if finding.code is FindingCode.VERIFIED else "red"
        call.screen.line(f"{finding.code}: {finding.message}", style=style)
    if not good:
        raise typer.Exit(EXIT_REFUSED)


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
