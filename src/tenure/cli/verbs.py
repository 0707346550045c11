"""The waist of the command line: every verb passes here.

`verb` adds the options that a verb shares with others, hands it a `Call` instead of
them, closes what the call opened, and turns errors into one clear line and the exit code
of `tenure.errors`. No verb catches an error to print it.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import typer

from tenure.cli import options
from tenure.cli.access import Api, open_api
from tenure.cli.screen import Screen
from tenure.errors import EXIT_BROKEN, DatabaseUnavailable, TenureError

if TYPE_CHECKING:
    from tenure.config import Settings

__all__ = ["Call", "verb"]

F = TypeVar("F", bound=Callable[..., None])

EXIT_INTERRUPTED: Final = 130  # what shells report of a command that Ctrl-C ended
_CONFIG: Final = (
    ("database_url", options.DatabaseUrl, None),
    ("config_file", options.ConfigFile, None),
)
_ACCESS: Final = (("server", options.Server, None), ("key", options.Key, None))
_JSON: Final = (("as_json", options.AsJson, False),)


class Call:
    """One run of a verb: its screen, its settings, and whom it asks."""

    def __init__(self, shared: Mapping[str, Any], stack: ExitStack) -> None:
        self.screen: Final = Screen(as_json=bool(shared.get("as_json")))
        self._shared: Final = shared
        self._stack: Final = stack
        self._api: Api | None = None

    def given(self, option: str) -> Any:
        """Return the value of a shared option; None when it was not given."""
        return self._shared.get(option)

    def settings(self, **flags: object) -> Settings:
        """Return the settings: these flags over the environment over the file."""
        from tenure import config

        file: Path | None = self._shared.get("config_file")
        given = {"database_url": self._shared.get("database_url"), **flags}
        return config.load(given, file=file)

    def api(self) -> Api:
        """Return the API: of a running server with a key, else of the database itself."""
        if self._api is None:
            key: str | None = self._shared.get("key")
            server: str | None = self._shared.get("server")
            self._api = self._stack.enter_context(
                open_api(self.settings(), server=server, key=key)
            )
            if not self.screen.as_json:
                self.screen.note(f"asking {self._api.where}", style="dim")
        return self._api


def verb(
    group: typer.Typer,
    name: str,
    *,
    asks: bool = True,
    configured: bool = True,
    **command: Any,
) -> Callable[[F], F]:
    """Make a function `f(call, …)` the verb `name` of a group.

    `asks` adds the options that say whom to ask (`--server`, `--key`), `configured`
    those that say which settings hold. The function's first sentence is its help.
    """
    shared = (
        *_JSON,
        *(_ACCESS if asks else ()),
        *(_CONFIG if configured else ()),
    )

    def add(function: F) -> F:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        extra = [
            inspect.Parameter(
                option,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=annotation,
            )
            for option, annotation, default in shared
        ]
        names = {parameter.name for parameter in extra}

        def run(**values: Any) -> None:
            given = {name: values.pop(name) for name in names}
            _run(function, given, values)

        own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
        vars(run)["__signature__"] = inspect.Signature([*own, *extra])
        run.__annotations__ = {}
        run.__name__ = function.__name__
        run.__doc__ = function.__doc__
        group.command(name, **command)(run)
        return function

    return add


def _run(function: Callable[..., None], shared: Mapping[str, Any], own: Any) -> None:
    with ExitStack() as stack:
        call = Call(shared, stack)
        try:
            function(call, **own)
            sys.stdout.flush()
        except TenureError as error:
            call.screen.error(error)
            if isinstance(error, DatabaseUnavailable) and not call.given("key"):
                call.screen.note(
                    "`tenure config show` says which database is meant; --database-url"
                    " or TENURE_DATABASE_URL names another"
                )
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except BrokenPipeError:
            # Whoever read our output has gone; nobody is left to be told.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            if os.environ.get("TENURE_LOG_LEVEL", "").lower() == "debug":
                raise
            call.screen.note(
                f"error: a fault of Tenure's own, {type(error).__name__}: {error}."
                " TENURE_LOG_LEVEL=debug shows where; please report it",
                style="red",
            )
            raise typer.Exit(EXIT_BROKEN) from None
