"""`tenure demo`: an empty folder, a server, two receivers, and messages to watch."""

from typing import Annotated

import typer

from tenure.cli.verbs import Call, verb
from tenure.limits import DEMO_SECONDS

__all__ = ["add"]


def add(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    verb(app, "demo", asks=False)(demo)


def demo(
    call: Call,
    port: Annotated[int | None, typer.Option(help="Port; 0 picks one.")] = None,
    seconds: Annotated[
        float, typer.Option(min=0, help="How long messages are made; Ctrl-C ends all.")
    ] = DEMO_SECONDS,
) -> None:
    """Show how it works: server, receivers, signed messages, one failing endpoint.

    Everything lives in tenure-demo.db of this folder; Ctrl-C leaves nothing else.
    """
    from tenure.cli.showing import demonstrate

    demonstrate(call, port=port, seconds=seconds)
