"""Route tables: exactly the version asked for, bounded, the newer one wins."""

from __future__ import annotations

from tenure.ids import AppId
from tenure.outbox.routes import Routes, RouteTable


def table(app: str, version: int) -> RouteTable:
    return RouteTable(app=AppId(app), version=version, routes=())


def test_only_the_exact_version_is_an_answer() -> None:
    routes = Routes()
    routes.keep([table("a", 2)])
    assert routes.get("a", 2) is not None
    assert routes.get("a", 1) is None
    assert routes.get("a", 3) is None
    assert routes.get("b", 2) is None


def test_an_older_table_never_replaces_a_newer_one() -> None:
    routes = Routes()
    routes.keep([table("a", 3), table("a", 2)])
    assert routes.get("a", 3) is not None


def test_the_least_recently_used_table_goes_first() -> None:
    routes = Routes(count_max=2)
    routes.keep([table("a", 1), table("b", 1)])
    assert routes.get("a", 1) is not None
    routes.keep([table("c", 1)])
    assert routes.get("b", 1) is None
    assert routes.get("a", 1) is not None
    assert routes.get("c", 1) is not None
