"""Write the reference pages that are made from the source: ``just docs``.

`PAGES` maps each page to the function that returns its text; a tidy test compares the
committed pages with what these functions return.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from docs.commands import commands_page
from tenure.config import PREFIX, Settings
from tenure.doctor import CHECKS
from tenure.errors import Broken, Refused, TenureError, Unavailable, leaves
from tenure.inbox.verification import HINTS, PRESETS
from tenure.kernel.table import page as states_page
from tenure.outbox.waiting import CODES
from tenure.telemetry.events import Event

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


def events_page() -> str:
    """Return the reference of log lines."""
    return "\n".join(
        [
            "# Log lines\n",
            NOTE,
            (
                "One line for each surprising event. The text is stable; the fields are ids"
                " and counts, never payloads or secrets. The same events are counted as"
                " `tenure_events_total`, whether they are written or not"
                " ([logs](../operating/logs.md), [metrics](../operating/metrics.md)).\n"
            ),
            "| line | level | meaning |",
            "|---|---|---|",
            *(
                f"| `{event.text}` | {logging.getLevelName(event.level).lower()}"
                f" | {event.meaning} |"
                for event in Event
            ),
            "",
        ]
    )


def reasons_page() -> str:
    """Return the reference of what `explain` says."""
    return "\n".join(
        [
            "# Reasons\n",
            NOTE,
            (
                "`tenure explain` and `/api/v1/explain/…` say of every row why it stands"
                " where it stands: one of these codes, a sentence with the facts, the rule,"
                " and the next instant where there is one. The first one that holds is"
                " said.\n"
            ),
            "| code | says |",
            "|---|---|",
            *(f"| `{code}` | {says} |" for code, says in CODES.items()),
            "",
        ]
    )


def checks_page() -> str:
    """Return the reference of what `tenure doctor` looks at."""
    return "\n".join(
        [
            "# Checks of the doctor\n",
            NOTE,
            (
                "What [`tenure doctor`](../operating/doctor.md) looks at. *broken* is an"
                " invariant that does not hold, *attention* something that waits for an"
                " operator; what can be healed is mended by `--heal`.\n"
            ),
            "| check | must hold | grade | heals | what to do |",
            "|---|---|---|---|---|",
            *(
                f"| `{check.code}` | {check.invariant} | {check.grade}"
                f" | {'yes' if check.heal else ''} | {check.todo} |"
                for check in CHECKS
            ),
            "",
        ]
    )


def verification_page() -> str:
    """Return the reference of verification presets and refusals."""
    parts = [
        "# Verification\n",
        NOTE,
        (
            "How a source tells that a webhook comes from where it says. Every preset"
            " takes several secrets at once, compares in constant time, accepts signed"
            " instants up to 5 minutes off on both sides (option `tolerance_seconds`),"
            " and refuses an empty secret, a doubled proof and whatever cannot be read."
            " Options of every preset: `tolerance_seconds`, `strict_replay` (each"
            " signature is accepted once), `format=cloudevents` (binary, structured and"
            " batch modes, and the `OPTIONS` handshake).\n"
        ),
        "| preset | provider | secret | notes |",
        "|---|---|---|---|",
        *(
            f"| `{preset.name}` | {preset.title} | {preset.secret or 'none'}"
            f" | {preset.docs} |"
            for preset in PRESETS.values()
        ),
        "",
        "## Why a request is refused\n",
        "| code | what to look at |",
        "|---|---|",
        *(f"| `{reason}` | {hint} |" for reason, hint in HINTS.items()),
        "",
    ]
    return "\n".join(parts)


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
    "reference/checks.md": checks_page,
    "reference/errors.md": errors_page,
    "reference/events.md": events_page,
    "reference/reasons.md": reasons_page,
    "reference/settings.md": settings_page,
    "reference/verification.md": verification_page,
}


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (DOCS / name).parent.mkdir(parents=True, exist_ok=True)
        (DOCS / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
