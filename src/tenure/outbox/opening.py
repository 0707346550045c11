"""What a deployment's settings mean for its outbox, and the ring that opens its secrets."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from tenure.errors import WrongKeyRing
from tenure.limits import DAY_SECONDS
from tenure.outbox.keyring import KeyRing, keys_beside
from tenure.outbox.model import OutboxSettings
from tenure.store.identity import claim_setting, read_setting

if TYPE_CHECKING:
    from tenure.config import Settings
    from tenure.limits import Durations
    from tenure.store.backend import Backend

__all__ = ["key_ring", "outbox_settings"]

_RING: Final = "key_ring"


def outbox_settings(settings: Settings, durations: Durations) -> OutboxSettings:
    """Return what a deployment's settings mean for its outbox."""
    return OutboxSettings(
        payload_max_bytes=settings.payload_max_bytes,
        allow_networks=settings.allow_networks,
        https_only=settings.https_only,
        svix_headers=settings.svix_headers,
        retention_seconds=settings.payload_days * DAY_SECONDS,
        history_seconds=settings.history_days * DAY_SECONDS,
        response_seconds=settings.response_days * DAY_SECONDS,
        idempotency_seconds=settings.idempotency_hours * 3600.0,
        durations=durations,
    )


async def key_ring(settings: Settings, backend: Backend) -> KeyRing:
    """Return the ring that opens this database's secrets.

    Keys not given are read from ``<database>.keys`` beside a SQLite file, which is made
    at the database's first start. Raises ConfigInvalid on PostgreSQL without keys,
    WrongKeyRing when the database was sealed with other keys or the file is gone.
    """
    keys = tuple(key.get_secret_value() for key in settings.secret_keys)
    if not keys:
        kept = await backend.read(partial(read_setting, name=_RING))
        keys = await asyncio.to_thread(keys_beside, backend, fresh=kept is None)
    ring = KeyRing(keys)
    check = await backend.write(
        partial(claim_setting, name=_RING, value=ring.check_value())
    )
    if not ring.opens(check):
        raise WrongKeyRing(
            "the secret keys do not open this database: give the ring it was used with"
            " (TENURE_SECRET_KEYS, or the .keys file beside SQLite's)"
        )
    return ring
