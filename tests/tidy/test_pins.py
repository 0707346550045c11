import re
import tomllib
from importlib.metadata import distributions

import pytest

from tests.tidy.checkout import ROOT

# Tools that an environment brings itself.
UNPINNED = frozenset({"pip", "setuptools", "tenure", "uv", "wheel"})


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def pins() -> dict[str, set[str]]:
    """Return the pinned versions of each package; more than one where markers differ."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lines: list[str] = project["tool"]["uv"]["constraint-dependencies"]
    pinned: dict[str, set[str]] = {}
    for line in lines:
        match = re.match(r"([\w.-]+)==([^\s;]+)", line)
        assert match, f"{line!r} is no exact pin"
        pinned.setdefault(canonical(match[1]), set()).add(match[2])
    return pinned


def test_every_installed_package_is_pinned_at_its_version(pins: dict[str, set[str]]):
    installed = {canonical(d.metadata["Name"]): d.version for d in distributions()}
    differing = {
        name: f"installed {version}, pinned {pins.get(name) or 'not at all'}"
        for name, version in installed.items()
        if name not in UNPINNED and version not in pins.get(name, ())
    }
    assert differing == {}, "run `just lock`, or `uv sync` if only you differ"
