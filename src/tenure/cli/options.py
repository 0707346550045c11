"""The options that several verbs share, each written once.

The names of settings are those of `tenure.config`: a flag wins over the variable, the
variable over `tenure.toml`.
"""

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "App",
    "AsJson",
    "ConfigFile",
    "DatabaseUrl",
    "Key",
    "Limit",
    "Server",
    "Yes",
]

SETTINGS = "Settings"
ACCESS = "Whom to ask"

AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON, for programs.", show_default=False)
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="File of settings instead of tenure.toml in this folder.",
        rich_help_panel=SETTINGS,
    ),
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        help="sqlite:///FILE or postgresql://USER@HOST/NAME.",
        rich_help_panel=SETTINGS,
    ),
]
Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        envvar="TENURE_SERVER",
        help="Address of a running server, with --key.",
        rich_help_panel=ACCESS,
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        envvar="TENURE_API_KEY",
        help="API key for the server. Without one the database is opened directly.",
        rich_help_panel=ACCESS,
        show_envvar=True,
    ),
]
App = Annotated[
    str | None, typer.Option("--app", help="Application, by its id or uid.")
]
Limit = Annotated[
    int, typer.Option("--limit", min=1, max=1000, help="At most so many.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
