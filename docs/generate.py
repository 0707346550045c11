"""Write the reference pages that are made from the source: ``just docs``.

`PAGES` maps each page to the function that returns its text; a tidy test compares the
committed pages with what these functions return.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from docs.commands import commands_page
from tenure.config import PREFIX, Settings
from tenure.errors import Broken, Refused, TenureError, Unavailable, leaves
from tenure.kernel.table import page as states_page

DOCS: Final = Path(__file__).parent
NOTE: Final = "<!-- Made by `just docs`; change the source instead. -->\n"


def errors_page() -> str:
    """Return the reference of error codes."""
    parts = [
        "# Errors\n",
        NOTE,
        (
            "Every error is one of three kinds. The API answers with the HTTP status and"
            ' `{"code": …, "detail": …}` (422: a list of `loc`, `msg`, `type`); the command'
            " line ends with the exit code.\n"
        ),
    ]
    for kind in (Refused, Unavailable, Broken):
        parts += [
            f"## {kind.__name__}\n",
            f"{_sentence(kind)}\n",
            "| code | HTTP status | exit code | meaning |",
            "|---|---|---|---|",
            *(
                f"| `{leaf.code}` | {leaf.status} | {leaf.exit_code}"
                f" | {_sentence(leaf)} |"
                for leaf in leaves(kind)
            ),
            "",
        ]
    return "\n".join(parts)


def settings_page() -> str:
    """Return the reference of settings."""
    parts = [
        "# Settings\n",
        NOTE,
        (
            "Each setting can be given as a flag, as an environment variable or in"
            " `tenure.toml` of the working directory; the flag wins over the variable, the"
            " variable over the file. An unknown name in the file is refused. In the file"
            " a setting has its plain name and lists may be arrays.\n"
        ),
        "| name in `tenure.toml` | variable | default | meaning |",
        "|---|---|---|---|",
    ]
    for name, field in Settings.model_fields.items():
        meaning = field.description or ""
        parts.append(
            f"| `{name}` | `{PREFIX}{name.upper()}` | {_default(field.default)}"
            f" | {meaning} |"
        )
    return "\n".join([*parts, ""])


def _default(value: object) -> str:
    match value:
        case None | () | SecretStr():
            return "not set"
        case bool():
            return "`on`" if value else "`off`"
        case _:
            return f"`{value}`"


def _sentence(error: type[TenureError]) -> str:
    return (error.__doc__ or "").split("\n\n", maxsplit=1)[0].replace("\n", " ")


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "internals/states.md": states_page,
    "reference/cli.md": lambda: commands_page(NOTE),
    "reference/errors.md": errors_page,
    "reference/settings.md": settings_page,
}


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (DOCS / name).parent.mkdir(parents=True, exist_ok=True)
        (DOCS / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
