from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sqlalchemy.engine import make_url

from tenure.work.filelock import (
    FileLock,
    LockState,
    host_name,
    lock_path,
    probe,
    remove_free,
)


def test_a_lock_is_held_until_it_is_released(tmp_path: Path) -> None:
    path = tmp_path / "node.lock"
    lock = FileLock.take(path)
    assert lock is not None
    assert path.stat().st_mode & 0o777 == 0o600
    assert probe(path) is LockState.HELD
    assert FileLock.take(path) is None
    lock.release()
    assert not path.exists()
    lock.release()


def test_a_missing_file_proves_nothing(tmp_path: Path) -> None:
    assert probe(tmp_path / "never") is LockState.UNKNOWN


def test_looking_at_a_free_lock_does_not_take_it(tmp_path: Path) -> None:
    path = tmp_path / "left"
    path.touch()
    assert probe(path) is LockState.FREE
    assert probe(path) is LockState.FREE


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    path = tmp_path / "node.lock"
    code = (
        "import pathlib, sys\n"
        "from tenure.work.filelock import FileLock\n"
        "lock = FileLock.take(pathlib.Path(sys.argv[1]))\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert probe(path) is LockState.HELD
        process.kill()
        process.wait()
        assert probe(path) is LockState.FREE


def test_a_lock_that_cannot_be_made_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert FileLock.take(tmp_path / "file" / "node.lock") is None


def test_sqlites_lock_lies_beside_its_file(tmp_path: Path) -> None:
    url = make_url(f"sqlite:///{tmp_path}/t.db")
    assert lock_path("sqlite", url, "x") == tmp_path / "t.db.node-x.lock"


def test_postgresqls_lock_lies_in_the_runtime_folder(tmp_path: Path) -> None:
    url = make_url("postgresql+asyncpg://h/d")
    found = lock_path("postgresql", url, "x", {"XDG_RUNTIME_DIR": str(tmp_path)})
    assert found == tmp_path / "tenure" / "node-x.lock"
    lock = FileLock.take(found)
    assert lock is not None
    assert found.parent.stat().st_mode & 0o777 == 0o700
    lock.release()


def test_a_host_keeps_its_name() -> None:
    assert host_name() == host_name() != ""


def test_only_the_file_of_a_free_lock_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "node.lock"
    lock = FileLock.take(path)
    assert lock is not None
    assert not remove_free(path)
    assert path.exists()
    lock.release(keep_file=True)
    assert remove_free(path)
    assert not path.exists()
    assert not remove_free(path)
