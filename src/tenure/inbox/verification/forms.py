"""Forms and queries as hostile input: what is none has no fields."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

__all__ = ["parse_form"]

_FIELDS_MAX: Final = 10_000


def parse_form(raw: bytes) -> list[tuple[str, str]]:
    """Return the fields of a form or a query, in order, with repeats and blanks."""
    try:
        return parse_qsl(
            raw.decode("latin-1"), keep_blank_values=True, max_num_fields=_FIELDS_MAX
        )
    except ValueError:
        return []
