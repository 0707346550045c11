"""Takes one guard at a time out of a copy of the source: named tests must go red.

A guard whose removal turns nothing red protects nothing that anybody checks. First the
same tests run on an untouched copy: they must be green there, or red would mean nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ablation.guards import GUARDS, Guard
from tests.databases import PostgresServer

pytestmark = [pytest.mark.ablation, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
PATIENCE = re.compile(r"^PATIENCE = [0-9.]+$", re.MULTILINE)
"""How long tests wait for a fact: here it does not come, so they wait less."""
PLUGINS = ("pytest_asyncio.plugin", "pytest_timeout", "_hypothesis_pytestplugin")
"""What the tests need; loading whatever is installed takes longer than they do."""
RED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@pytest.fixture(scope="module")
def server(postgres_server: PostgresServer) -> str:
    """One PostgreSQL for all runs: starting one for each takes longer than the tests."""
    return postgres_server.url.render_as_string(hide_password=False)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory, server: str) -> Path:
    """A copy of the project, on which the chosen tests pass."""
    folder = tmp_path_factory.mktemp("ablation")
    for part in ("src", "tests"):
        shutil.copytree(
            ROOT / part,
            folder / part,
            ignore=shutil.ignore_patterns("__pycache__", ".hypothesis"),
        )
    shutil.copy(ROOT / "pyproject.toml", folder)
    rig = folder / "tests/work/rig.py"
    text, times = PATIENCE.subn("PATIENCE = 6.0", rig.read_text())
    assert times == 1
    rig.write_text(text)
    wanted = sorted({test for guard in GUARDS for test in guard.tests})
    done = run(folder, wanted, server)
    assert done.returncode == 0, done.stdout[-6_000:]
    return folder


def run(
    folder: Path, tests: list[str], server: str
) -> subprocess.CompletedProcess[str]:
    """Run tests of the copy against the source of the copy."""
    environ = {
        **os.environ,
        "PYTHONPATH": str(folder / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_PROFILE": "ablation",
        "TENURE_TEST_POSTGRES": server,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    loaded = [part for name in PLUGINS for part in ("-p", name)]
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", *loaded]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", *tests],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_taking_the_guard_out_turns_its_tests_red(
    guard: Guard, copy: Path, server: str
) -> None:
    originals: dict[Path, str] = {}
    try:
        for file, old, new in guard.edits:
            path = copy / "src" / "tenure" / file
            text = path.read_text()
            originals.setdefault(path, text)
            assert text.count(old) == 1, f"{file}: the guard's text has changed"
            path.write_text(text.replace(old, new))
        done = run(copy, list(guard.tests), server)
    finally:
        for path, text in originals.items():
            path.write_text(text)
    red = sorted({name.split("[")[0] for name in RED.findall(done.stdout)})
    print(f"\n{guard.name} → {', '.join(red) or 'nothing'}")
    green = [
        test
        for test in guard.tests
        if not any(name.startswith(test.split("[")[0]) for name in red)
    ]
    assert not green, f"still green without the guard:\n{done.stdout[-4_000:]}"
