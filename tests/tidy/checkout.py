"""What the tidy tests look at: the committed files of this checkout."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "tenure"


@cache
def committed() -> tuple[Path, ...]:
    """Return every committed file that still exists."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    files = (ROOT / name for name in listed.split("\0") if name)
    return tuple(sorted(file for file in files if file.is_file()))


def python_files(*folders: str) -> list[Path]:
    """Return the committed Python files below these folders of the checkout."""
    return [
        file
        for file in committed()
        if file.suffix == ".py" and file.relative_to(ROOT).parts[0] in folders
    ]


def shown(file: Path) -> str:
    """Return a file's path as a fault names it."""
    return file.relative_to(ROOT).as_posix()
