"""Encryption at rest: a ring of Fernet keys, the newest first.

The newest key seals; every key opens. Rotation is: put a new key in front, rewrite
what is stored with `KeyRing.rotate`, take the old key away.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from tenure.errors import ConfigInvalid, WrongKeyRing
from tenure.ids import random_bytes, token

if TYPE_CHECKING:
    from tenure.store.backend import Backend

_KEY_BYTES: Final = 32
_CHECK: Final = b"tenure key ring check 1"


def new_key() -> str:
    """Make a key for the ring: the URL-safe base64 of 32 random bytes."""
    return base64.urlsafe_b64encode(random_bytes(_KEY_BYTES)).decode()


class KeyRing:
    """Seals with its first key and opens with any of its keys.

    Raises ConfigInvalid for an empty ring and for a malformed or repeated key, named by
    its position from 1; neither errors nor the repr ever show a key.
    """

    __slots__ = ("_count", "_fernet")

    def __init__(self, keys: Sequence[str]) -> None:
        if not keys:
            raise ConfigInvalid(
                "the key ring is empty; give at least one key (`tenure key new`)"
            )
        seen: dict[bytes, int] = {}
        for position, text in enumerate(keys, start=1):
            key = _parsed(text, position)
            if key in seen:
                raise ConfigInvalid(
                    f"key {position} of the ring is the same as key {seen[key]};"
                    " list each key once, the newest first"
                )
            seen[key] = position
        self._count: Final = len(seen)
        self._fernet: Final = MultiFernet(
            [Fernet(base64.urlsafe_b64encode(key)) for key in seen]
        )

    def __repr__(self) -> str:
        return f"KeyRing({self._count} keys, masked)"

    def seal(self, plain: bytes) -> bytes:
        """Return the bytes encrypted and authenticated with the newest key."""
        return self._fernet.encrypt(plain)

    def open(self, sealed: bytes) -> bytes:
        """Return the bytes that were sealed; raises WrongKeyRing if no key opens it."""
        try:
            return self._fernet.decrypt(sealed)
        except InvalidToken:
            raise self._wrong() from None

    def rotate(self, sealed: bytes) -> bytes:
        """Return the same content sealed with the newest key.

        Raises WrongKeyRing if no key opens it.
        """
        try:
            return self._fernet.rotate(sealed)
        except InvalidToken:
            raise self._wrong() from None

    def check_value(self) -> bytes:
        """Return the value to store at first start, for `opens` at every later one."""
        return self.seal(_CHECK)

    def opens(self, check: bytes) -> bool:
        """Tell whether this ring opens what the ring of the first start sealed."""
        try:
            return self._fernet.decrypt(check) == _CHECK
        except InvalidToken:
            return False

    def _wrong(self) -> WrongKeyRing:
        return WrongKeyRing(
            f"none of the {self._count} keys of the ring opens a stored secret;"
            " add the key it was sealed with to the end of the ring,"
            " or restore the ring that this database was used with"
        )


def _parsed(text: str, position: int) -> bytes:
    wanted = "wanted: the URL-safe base64 of 32 bytes (`tenure key new` makes one)"
    if not text.strip():
        raise ConfigInvalid(f"key {position} of the ring is empty; {wanted}")
    try:
        # urlsafe_b64decode alone skips foreign characters and so accepts typing errors.
        raw = base64.b64decode(text.strip(), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise ConfigInvalid(
            f"key {position} of the ring is not URL-safe base64; {wanted}"
        ) from None
    if len(raw) != _KEY_BYTES:
        raise ConfigInvalid(
            f"key {position} of the ring holds {len(raw)} bytes; {wanted}"
        )
    return raw


def keys_beside(backend: Backend, *, fresh: bool) -> tuple[str, ...]:
    """Return the keys of the file beside a SQLite database, made at its first start.

    `fresh` = nothing is sealed yet. Raises ConfigInvalid elsewhere than on SQLite,
    WrongKeyRing when the file is gone. Reads and writes files.
    """
    if backend.dialect != "sqlite" or backend.url.database is None:
        raise ConfigInvalid(
            "TENURE_SECRET_KEYS is not set, and several machines must share one ring:"
            f" here is a fresh key, keep it safe: {new_key()}"
        )
    database = Path(backend.url.database).absolute()
    path = database.with_name(f"{database.name}.keys")
    if not path.exists():
        if (
            not fresh
        ):  # a new ring beside sealed secrets would only hide what is missing
            raise WrongKeyRing(
                f"the key ring {path.name} is missing beside {database.name}, whose"
                " secrets it opens: put it back, or give its keys as TENURE_SECRET_KEYS"
            )
        draft = path.with_name(f"{path.name}.{token(8)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(new_key() + "\n")
            file.flush()
            os.fsync(file.fileno())
        # Whoever links first wins: two processes at a first start share one ring.
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
    return tuple(path.read_text("ascii").split())
