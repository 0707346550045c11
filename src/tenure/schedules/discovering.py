"""Finds the code that registers jobs: modules a setting names, and entry points.

To import a module is to register what it holds. A distribution that brings jobs names
its module by an entry point of the group `tenure.packages`, and needs no setting.
"""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final

from tenure.errors import ConfigInvalid

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["GROUP", "discover"]

GROUP: Final = "tenure.packages"
"""The group of entry points; each value is a module, or something inside of one."""


def discover(modules: Iterable[str]) -> tuple[str, ...]:
    """Import these modules and those that entry points name; return their names.

    Blocks while Python loads them. Raises ConfigInvalid that names the module which
    cannot be imported, and why.
    """
    found = [
        (f"entry point {each.name!r}", each.module)
        for each in entry_points(group=GROUP)
    ]
    wanted = [*sorted(found), *(("TENURE_PACKAGES", name) for name in modules)]
    for where, name in wanted:
        try:
            importlib.import_module(name)
        except ConfigInvalid:
            raise
        except Exception as error:
            raise ConfigInvalid(
                f"{where}: module {name!r} cannot be imported:"
                f" {type(error).__name__}: {error}"
            ) from error
    return tuple(name for _, name in wanted)
