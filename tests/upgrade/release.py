"""The release before: its source as it landed, run as processes of its own."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEWEST = "src/tenure/store/migrations/versions/v0005.py"


def source_before(folder: Path) -> Path:
    """Return the source of the commit before the newest revision, laid out in `folder`.

    Skips where the history is not there: a shallow clone, or no checkout at all.
    """
    added = _git("log", "--diff-filter=A", "--format=%H", "--", NEWEST).split()
    if not added:
        pytest.skip(f"the history does not say when {NEWEST} was added")
    try:
        packed = subprocess.run(
            ["git", "archive", f"{added[-1]}^", "src"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout
    except subprocess.CalledProcessError as error:
        pytest.skip(f"the commit before {added[-1][:9]} is not here: {error.stderr!r}")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    source = folder / "src"
    assert (source / "tenure" / "engine.py").exists()
    assert not (folder / NEWEST).exists()
    return source


def _git(*arguments: str) -> str:
    try:
        return subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"git cannot tell the history: {error}")
