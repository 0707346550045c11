"""`tenure serve`: the real thing, in one process or in several."""

from typing import Annotated, Any, Final

import typer

from tenure.cli.verbs import Call, verb

__all__ = ["add"]

SERVER: Final = "Server"
POLICY: Final = "Policy"
LOGS: Final = "Logs"


def add(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    verb(app, "serve", asks=False)(serve)


def serve(
    call: Call,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on.", rich_help_panel=SERVER)
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Port; 0 picks a free one.", rich_help_panel=SERVER),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(help="Processes, each a node.", rich_help_panel=SERVER),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(help="Attempts at once per node.", rich_help_panel=SERVER),
    ] = None,
    drain_seconds: Annotated[
        float | None,
        typer.Option(
            help="How long a stop waits for what is in flight.", rich_help_panel=SERVER
        ),
    ] = None,
    allow_networks: Annotated[
        str | None,
        typer.Option(
            "--allow-networks",
            "--allow-network",
            help="Networks that endpoints may live in although they are not public,"
            " such as 127.0.0.0/8; separated by commas.",
            rich_help_panel=POLICY,
        ),
    ] = None,
    sending: Annotated[
        str | None,
        typer.Option(
            metavar="on|off",
            help="off: accept and keep, send nothing.",
            rich_help_panel=POLICY,
        ),
    ] = None,
    https_only: Annotated[
        str | None,
        typer.Option(
            metavar="on|off",
            help="on: refuse endpoints that are not https.",
            rich_help_panel=POLICY,
        ),
    ] = None,
    svix_headers: Annotated[
        str | None,
        typer.Option(
            metavar="on|off",
            help="on: send svix-* headers as well.",
            rich_help_panel=POLICY,
        ),
    ] = None,
    payload_max_bytes: Annotated[
        int | None,
        typer.Option(help="Largest message body.", rich_help_panel=POLICY),
    ] = None,
    deployment: Annotated[
        str | None,
        typer.Option(help="Name of this deployment.", rich_help_panel=POLICY),
    ] = None,
    sqlite_synchronous: Annotated[
        str | None,
        typer.Option(
            help="NORMAL: faster; a power cut may lose the last commits.",
            rich_help_panel=POLICY,
            metavar="FULL|NORMAL",
        ),
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(
            metavar="debug|info|warning|error",
            help="Least severe line.",
            rich_help_panel=LOGS,
        ),
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option(
            metavar="json|console", help="How lines look.", rich_help_panel=LOGS
        ),
    ] = None,
    supervised: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run a server: accept, deliver, show.

    Makes the database and brings its schema up to date first. Prints an API key at the
    first start. SIGTERM and Ctrl-C drain: what is in flight finishes; a second signal
    cuts it.
    """
    flags: dict[str, Any] = {
        "host": host,
        "port": port,
        "slots": slots,
        "drain_seconds": drain_seconds,
        "allow_networks": allow_networks,
        "sending": sending,
        "https_only": https_only,
        "svix_headers": svix_headers,
        "payload_max_bytes": payload_max_bytes,
        "deployment": deployment,
        "sqlite_synchronous": sqlite_synchronous,
        "log_level": log_level,
        "log_format": log_format,
    }
    from tenure.cli.hosting import host as serve_on

    serve_on(call, flags, processes=processes, supervised=supervised)
