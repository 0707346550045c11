"""The command line as a whole: `tenure`."""

import logging
import os
from typing import Annotated

import typer

from tenure import __version__
from tenure.cli import (
    adopting,
    demonstrating,
    doctor,
    explaining,
    lab,
    listening,
    sending,
    serving,
    triggering,
    verifying,
)
from tenure.cli.configuring import configuration
from tenure.cli.endpoints import endpoints
from tenure.cli.jobs import jobs
from tenure.cli.keys import key, keys
from tenure.cli.messages import messages
from tenure.cli.migrating import migrate
from tenure.cli.nodes import nodes
from tenure.cli.receipts import receipts
from tenure.cli.runs import packages, runs
from tenure.cli.sources import sources
from tenure.cli.verbs import Call, verb

__all__ = ["command_line", "main"]


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"tenure {__version__}")
        raise typer.Exit


def command_line() -> typer.Typer:
    """Return the whole command line."""
    app = typer.Typer(
        name="tenure",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def root(
        _version: Annotated[
            bool,
            typer.Option(
                "--version",
                help="Print the version.",
                callback=_print_version,
                is_eager=True,
            ),
        ] = False,
    ) -> None:
        """Signed webhooks that arrive, and a reason for each that has not yet."""

    demonstrating.add(app)
    serving.add(app)
    sending.add(app)
    explaining.add(app)
    doctor.add(app)
    verifying.add(app)
    adopting.add(app)
    lab.add(app)
    listening.add(app)
    triggering.add(app)
    for group, name in (
        (messages, "messages"),
        (endpoints, "endpoints"),
        (sources, "sources"),
        (receipts, "receipts"),
        (jobs, "jobs"),
        (runs, "runs"),
        (packages, "packages"),
        (nodes, "nodes"),
        (keys, "keys"),
        (key, "key"),
        (migrate, "migrate"),
        (configuration, "config"),
    ):
        app.add_typer(group, name=name)

    @verb(app, "version", asks=False)
    def version(call: Call) -> None:
        """Print the version."""
        if call.screen.as_json:
            call.screen.json({"version": __version__})
        else:
            call.screen.line(__version__)

    return app


def main() -> None:
    """Run the command line; ends with the exit code of the verb."""
    _quiet_logs()
    command_line()()


def _quiet_logs() -> None:
    """Let libraries' log lines not mix with results; a server says otherwise."""
    from tenure.telemetry import logs

    level = os.environ.get("TENURE_LOG_LEVEL", "").lower()
    logs.configure(level="debug" if level == "debug" else "error")
    logging.getLogger("alembic").setLevel(logging.WARNING)
