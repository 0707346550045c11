"""A source's verification, compiled once and asked for every request."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.inbox.locating import locate, parse_locator
from tenure.inbox.verification import cloudevents
from tenure.inbox.verification.forms import parse_form
from tenure.inbox.verification.model import (
    Handshake,
    Outcome,
    Refusal,
    RefusalReason,
    Verified,
)
from tenure.inbox.verification.naming import event_type_of
from tenure.inbox.verification.presets import Preset, Shake

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenure.inbox.arrivals import Arrival
    from tenure.inbox.verification.proofs import Proof, Proved

__all__ = ["Check"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Judges requests; safe to use for any number of them."""

    preset: Preset
    proof: Proof
    keys: tuple[bytes, ...]
    verify_tokens: tuple[bytes, ...] = ()
    cloudevents: bool = False
    strict_replay: bool = False
    credential_headers: frozenset[str] = frozenset()
    """Lower-case names of header lines whose value is a secret by itself."""

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods of handshakes, beyond those that bring events."""
        asked: list[str] = []
        if self.preset.shake in {Shake.META, Shake.X}:
            asked.append("GET")
        if self.cloudevents:
            asked.append("OPTIONS")
        return tuple(asked)

    def verify(self, arrival: Arrival, now_us: int) -> Outcome:
        """Say whether a request is believed, and what it is; never raises."""
        asked = self._asked(arrival)
        if asked is not None:
            return asked
        proved = self.proof.check(arrival, now_us)
        if isinstance(proved, Refusal):
            return proved
        answered = self._answered(arrival)
        if answered is not None:
            return answered
        return self._verified(arrival, proved)

    # --- handshakes ------------------------------------------------------------------

    def _asked(self, arrival: Arrival) -> Handshake | Refusal | None:
        """Answer what a provider asks before it can sign anything."""
        if arrival.method == "OPTIONS" and self.cloudevents:
            return cloudevents.permitted(arrival)
        if arrival.method != "GET":
            return None
        match self.preset.shake:
            case Shake.META:
                return self._subscribed(arrival)
            case Shake.X:
                return self._challenged(arrival)
            case _:
                return None

    def _subscribed(self, arrival: Arrival) -> Handshake | Refusal:
        asked = _query(arrival)
        given = asked.get("hub.verify_token", "").encode(errors="surrogatepass")
        if asked.get("hub.mode") != "subscribe" or not self.verify_tokens:
            return Refusal(
                reason=RefusalReason.MALFORMED,
                detail="a GET is answered when hub.mode is `subscribe` and the source"
                " has a secret verify:TOKEN",
            )
        if not any(hmac.compare_digest(given, each) for each in self.verify_tokens):
            return Refusal(
                reason=RefusalReason.BAD_SIGNATURE,
                detail="hub.verify_token is not the source's",
                status=403,
            )
        challenge = asked.get("hub.challenge", "")
        return _text(challenge.encode(errors="replace"))

    def _challenged(self, arrival: Arrival) -> Handshake | Refusal:
        token = _query(arrival).get("crc_token")
        if not token:
            return Refusal(
                reason=RefusalReason.MALFORMED, detail="a GET needs a crc_token"
            )
        mac = hmac.digest(
            self.keys[0], token.encode(errors="surrogatepass"), hashlib.sha256
        )
        said = "sha256=" + base64.b64encode(mac).decode()
        return _json({"response_token": said})

    def _answered(self, arrival: Arrival) -> Handshake | None:
        """Answer what a provider asks in a request that it signed."""
        match self.preset.shake:
            case Shake.SLACK:
                body = _object(arrival.body)
                challenge = body.get("challenge")
                if body.get("type") == "url_verification" and isinstance(
                    challenge, str
                ):
                    return _text(challenge.encode(errors="replace"))
            case Shake.DISCORD:
                body = _object(arrival.body)
                kind = body.get("type")
                # Interactions ask with type 1, webhook events with type 0.
                if kind == 1 and kind is not True and "token" in body:
                    return _json({"type": 1})
                if kind == 0 and kind is not False and "event" not in body:
                    return Handshake(status=204)
            case _:
                pass
        return None

    # --- what it is ------------------------------------------------------------------

    def _verified(self, arrival: Arrival, proved: Proved) -> Verified | Refusal:
        nonce = proved.nonce
        if nonce is None and self.strict_replay:
            nonce = proved.signature or hashlib.sha256(arrival.body).digest()
        if self.cloudevents:
            return cloudevents.read(arrival, nonce)
        return Verified(
            event_type=event_type_of(self._first(self.preset.event_type, arrival)),
            key=self._first(self.preset.event_id, arrival),
            nonce=nonce,
        )

    def _first(self, places: Sequence[str], arrival: Arrival) -> str | None:
        for place in places:
            found = [_find(part, arrival) for part in place.split("+")]
            texts = [text for text in found if text]
            if len(texts) == len(found):
                return ".".join(texts)
        return None


def _find(place: str, arrival: Arrival) -> str | None:
    kind, _, name = place.partition(":")
    if kind == "form":
        return dict(parse_form(arrival.body)).get(name)
    return locate(parse_locator(place), arrival)


def _query(arrival: Arrival) -> dict[str, str]:
    return dict(parse_form(arrival.query))


def _object(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}


def _text(body: bytes) -> Handshake:
    # Plain, and not to be sniffed: a challenge is whatever a stranger writes.
    headers = {"content-type": "text/plain; charset=utf-8"}
    return Handshake(status=200, body=body, headers=headers)


def _json(value: object) -> Handshake:
    headers = {"content-type": "application/json"}
    return Handshake(status=200, body=msgspec.json.encode(value), headers=headers)
