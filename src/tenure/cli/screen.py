"""What a command prints: for people, or as JSON for programs.

Results go to standard output, everything else (notes, errors) to standard error. With
`--json` standard output holds one JSON document, or one per line for a stream, and
nothing more.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TextIO

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tenure.clock import from_rfc3339
from tenure.errors import TenureError, ValidationFailed

__all__ = ["Screen", "ago", "when"]

WIDE: Final = 400  # columns when nobody looks: a pipe must not cut ids


class Screen:
    """Standard output and standard error of one command."""

    def __init__(
        self, *, as_json: bool, out: TextIO | None = None, err: TextIO | None = None
    ) -> None:
        self.as_json: Final = as_json
        self._out: Final = _console(out, stderr=False)
        self._err: Final = _console(err, stderr=True)

    @property
    def people(self) -> bool:
        """Whether a person at a terminal looks at the results."""
        return self._out.is_terminal and not self.as_json

    def json(self, value: object) -> None:
        """Print a JSON document on one line, or indented for people."""
        data = msgspec.json.encode(value)
        if self._out.is_terminal:
            data = msgspec.json.format(data, indent=2)
        self._write(data.decode())

    def line(self, text: str = "", *, style: str | None = None) -> None:
        """Print one line of a result; its text is never read as markup."""
        if not self.as_json:
            self._out.print(Text(text, style=style or ""), soft_wrap=True)

    def rewrite(self, text: str) -> None:
        """Print a line over the one printed before it; only at a terminal."""
        self._out.file.write(f"\r\x1b[2K{_printable(text)}")
        self._out.file.flush()

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str
    ) -> None:
        """Print rows under their columns, or what to do when there are none."""
        if not rows:
            self.note(empty)
            return
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(_cell(value) for value in row))
        self._out.print(table)

    def facts(self, pairs: Mapping[str, object]) -> None:
        """Print names with their values, one per line."""
        width = max((len(name) for name in pairs), default=0)
        for name, value in pairs.items():
            self.line(f"{name.ljust(width)}  {_plain(value)}")

    def note(self, text: str, *, style: str | None = None) -> None:
        """Tell something that is no result."""
        self._err.print(Text(text, style=style or ""), soft_wrap=True)

    def error(self, error: TenureError) -> None:
        """Say what was refused or failed."""
        if self.as_json:
            self._err.print(
                msgspec.json.encode(_problem(error)).decode(),
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
            return
        text = Text()
        text.append("error: ", style="bold red")
        text.append(error.message)
        text.append(f" ({error.code})", style="dim")
        self._err.print(text, soft_wrap=True)

    def _write(self, text: str) -> None:
        self._out.file.write(text + "\n")
        self._out.file.flush()


def _problem(error: TenureError) -> dict[str, Any]:
    problem: dict[str, Any] = {"code": error.code, "detail": error.message}
    if isinstance(error, ValidationFailed):
        problem["faults"] = [item.as_json() for item in error.items]
    return problem


def _console(file: TextIO | None, *, stderr: bool) -> Console:
    console = Console(file=file, stderr=stderr, markup=False, highlight=False)
    if not console.is_terminal:
        console.width = WIDE
    return console


def _cell(value: object) -> Text:
    return Text(_plain(value))


def _plain(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(str(part) for part in value) or "-"  # pyright: ignore[reportUnknownArgumentType]
        case _:
            return _printable(str(value))


def _printable(text: str) -> str:
    """Return the text without what a terminal would obey: it may come from anywhere."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)


def when(text: str | None) -> str:
    """Return an RFC 3339 instant to the second, UTC."""
    return "-" if text is None else text[:19].replace("T", " ") + "Z"


def ago(text: str, now_us: int) -> str:
    """Return how long before `now_us` an instant was, or how long after, in words."""
    seconds = (now_us - from_rfc3339(text)) / 1e6
    size, unit = _scaled(abs(seconds))
    return f"{size} {unit} ago" if seconds >= 0 else f"in {size} {unit}"


def _scaled(seconds: float) -> tuple[str, str]:
    for bound, divisor, unit in ((90, 1, "s"), (5400, 60, "min"), (172_800, 3600, "h")):
        if seconds < bound:
            return f"{seconds / divisor:.0f}", unit
    return f"{seconds / 86_400:.0f}", "d"
