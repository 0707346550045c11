"""The reference of the command line, made from the command line itself."""

from collections.abc import Iterator
from inspect import cleandoc
from typing import Any, Final

import typer.main

from tenure.cli.app import command_line

EXITS: Final = (
    "Every verb takes `--json` (one JSON document on standard output, errors as JSON on"
    " standard error) and `--help`. Settings come from flags, `TENURE_*` variables and"
    " `tenure.toml` ([Settings](settings.md)); exit codes are those of"
    " [Errors](errors.md). Verbs that ask the API ask the server at `--server` when there"
    " is a `--key`; without one they open the database directly.\n"
    "\n"
    "`tenure --install-completion` installs completion for the current shell.\n"
)
SHARED: Final = frozenset({"as_json", "help"})


def commands_page(note: str) -> str:
    """Return the page; `note` says how it is made."""
    parts = ["# Command line\n", note, EXITS]
    root: Any = typer.main.get_command(command_line())
    for name, command in _leaves(root, "tenure"):
        parts += [_command(name, command)]
    return "\n".join(parts)


def _leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    children: dict[str, Any] | None = getattr(command, "commands", None)
    if children is None:
        yield name, command
        return
    for word in sorted(children):
        yield from _leaves(children[word], f"{name} {word}")


def _command(name: str, command: Any) -> str:
    shown = [p for p in command.params if p.name not in SHARED]
    arguments = [p for p in shown if p.param_type_name == "argument"]
    options = [p for p in shown if p.param_type_name == "option" and not p.hidden]
    usage = " ".join([name, *((p.metavar or p.name).upper() for p in arguments)])
    text = cleandoc(command.help or "")
    lines = [f"## `{usage}`\n", f"{text}\n"]
    if arguments or options:
        lines += ["| | |", "|---|---|"]
        lines += [
            f"| `{_cell((p.metavar or p.name).upper())}` | {_cell(p.help)} |"
            for p in arguments
        ]
        lines += [f"| {_flags(p)} | {_cell(p.help)}{_default(p)} |" for p in options]
        lines.append("")
    return "\n".join(lines)


def _flags(option: Any) -> str:
    return ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|").replace("\n", " ")


def _default(option: Any) -> str:
    variable = f" Variable: `{option.envvar}`." if option.envvar else ""
    value = option.default
    if value in {None, False, ""} or callable(value):
        return variable
    return f" Default: {value}.{variable}"
