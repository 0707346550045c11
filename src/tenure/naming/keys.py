"""Short keys: the bare name where nobody else has it, else `package:name`.

Theory. A key is for people, so it must not move under them: a stored key stays with its
item for as long as somebody declares the item. What decides who gets a bare name is never
the order in which code was loaded: a holder that is declared keeps it; else it goes to
the first by package name among those that have no key yet.

    a stored key    stays, while its item is declared by an open node or this process
    a bare key      is given up by an item that nobody declares, but only to one that has
                    no key, and never to one that has its own already
    uninstalled     an item of a package that was uninstalled has no key
    package unknown an imported item has no key, and keeps none from others
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Keyed", "allot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyed:
    """An item as the catalogue has it. `package` None: it was imported without one."""

    id: str
    package: str | None
    name: str
    key: str | None
    declared: bool
    installed: bool = True


def allot(items: Iterable[Keyed]) -> dict[str, str]:
    """Return the key of each item that has one, by the item's id.

    Items of one name decide among themselves, so all that share a name are given. The
    order of `items` changes nothing. Keys are unique.
    """
    by_name: dict[str, list[Keyed]] = {}
    for item in items:
        if item.package is not None and item.installed:
            by_name.setdefault(item.name, []).append(item)
    keys: dict[str, str] = {}
    for name, sharing in by_name.items():
        holder = _holder(name, sharing)
        for item in sharing:
            keys[item.id] = name if item is holder else f"{item.package}:{name}"
    assert len(set(keys.values())) == len(keys), "a key leads to one item"
    return keys


def _holder(name: str, sharing: list[Keyed]) -> Keyed | None:
    """Return who has the bare name; None leaves it free for somebody new."""
    ordered = sorted(sharing, key=lambda item: (item.package or "", item.id))
    stored = next((item for item in ordered if item.key == name), None)
    new = next((i for i in ordered if not _has_own(i) and i.declared), None)
    if stored is not None and (stored.declared or new is None):
        return stored
    if new is not None:
        return new
    if stored is None and all(not _has_own(item) for item in ordered):
        return ordered[0]
    return None


def _has_own(item: Keyed) -> bool:
    """Tell whether an item has a key that is its own: a rename took the old one away."""
    return item.key in {item.name, f"{item.package}:{item.name}"}
