"""A lock that the operating system gives up for a process that died.

A node holds one such file for its whole life. A peer on the same host that can lock it
knows for certain that the node is dead, without waiting for silence. Only advisory
``flock`` is used: it follows the open file, so two engines in one process exclude each
other too. A file that is missing proves nothing.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy.engine import URL

    from tenure.store.tx import Dialect

__all__ = [
    "FileLock",
    "LockState",
    "host_name",
    "lock_path",
    "probe",
    "remove_free",
]

PRIVATE: Final = 0o700


class LockState(StrEnum):
    """What a peer can tell about a node's lock file."""

    HELD = "held"
    FREE = "free"
    UNKNOWN = "unknown"


def _try_lock(descriptor: int) -> bool:
    if sys.platform == "win32":  # no flock there: nobody is ever proven dead
        return False
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class FileLock:
    """A file that this process holds locked until `release` or its end."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path: Final = path
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, path: Path) -> FileLock | None:
        """Create and lock a file; None where locking is not possible."""
        try:
            path.parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(path, flags, 0o600)
        except (OSError, AttributeError):
            return None
        try:
            locked = _try_lock(descriptor)
        except OSError:  # a file system without locks
            locked = False
        if locked:
            return cls(path, descriptor)
        os.close(descriptor)
        return None

    def release(self, *, keep_file: bool = False) -> None:
        """Remove the file and give the lock up; repeating it changes nothing.

        With `keep_file` peers find it free, which says that its holder is no more.
        """
        if self._descriptor is None:
            return
        if not keep_file:
            # Removed while still locked: nobody can find it free in between.
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)
        self._descriptor = None


def probe(path: Path) -> LockState:
    """Tell whether somebody holds the lock of this file, without keeping it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return LockState.UNKNOWN
    try:
        return LockState.FREE if _try_lock(descriptor) else LockState.HELD
    except OSError:
        return LockState.UNKNOWN
    finally:
        os.close(descriptor)


def remove_free(path: Path) -> bool:
    """Remove the file of a lock that nobody holds any more; tell whether it did.

    For whoever closed the row of a node that died: nobody else tidies up behind it. The
    file goes while it is locked here, so a holder never loses its own.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if not _try_lock(descriptor):
            return False
        path.unlink(missing_ok=True)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


def host_name() -> str:
    """Return a name for this running machine: host name and boot id where known.

    Two machines that were given one host name, or one machine before and after a
    reboot, must not read each other's lock files as their own.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()}/{boot}" if boot else socket.gethostname()


def lock_path(
    dialect: Dialect, url: URL, token: str, environ: Mapping[str, str] = os.environ
) -> Path:
    """Return where a node keeps its lock: beside SQLite's file, else per user.

    ``token`` is unguessable and never used twice, so that no name is ever reused.
    """
    if dialect == "sqlite" and url.database and url.database != ":memory:":
        database = Path(url.database).absolute()
        return database.with_name(f"{database.name}.node-{token}.lock")
    return _runtime_folder(environ) / f"node-{token}.lock"


def _runtime_folder(environ: Mapping[str, str]) -> Path:
    user = os.getuid() if hasattr(os, "getuid") else 0
    chosen = environ.get("XDG_RUNTIME_DIR")
    for folder in (chosen, f"/run/user/{user}"):
        if folder and os.access(folder, os.W_OK | os.X_OK):
            return Path(folder) / "tenure"
    return Path(tempfile.gettempdir()) / f"tenure-{user}"
