"""Why a signature does not hold: the request is tried in the ways people get it wrong."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tenure.errors import ValidationFailed
from tenure.inbox.verification.compiling import compile_check
from tenure.inbox.verification.model import Handshake, Refusal, RefusalReason, Verified
from tenure.inbox.verification.presets import PRESETS
from tenure.outbox.signing import rewritings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tenure.inbox.arrivals import Arrival
    from tenure.inbox.verification.model import Verification

__all__ = ["Fault", "Finding", "debug"]


class Fault(StrEnum):
    """What the debugger can find. Codes are stable."""

    VERIFIED = "verified"
    SECRET_FORM = "secret_form"  # noqa: S105 -- a code
    WRONG_HEADER = "wrong_header"
    OTHER_PRESET = "other_preset"
    CLOCK = "clock"
    REENCODED_BODY = "reencoded_body"
    OTHER_URL = "other_url"
    WEAK_HASH = "weak_hash"
    MISMATCH = "mismatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is so, and what to change; never repeats a secret."""

    fault: Fault
    message: str


def debug(
    verification: Verification,
    secret: str,
    arrival: Arrival,
    *,
    now_us: int,
    public_url: str | None = None,
) -> list[Finding]:
    """Name why a request does not verify; VERIFIED alone when it does.

    Raises ValidationFailed for an unknown preset or bad options.
    """
    return _Debugger(verification, secret, arrival, now_us, public_url).findings()


class _Debugger:
    def __init__(
        self,
        verification: Verification,
        secret: str,
        arrival: Arrival,
        now_us: int,
        url: str | None,
    ) -> None:
        self._verification: Final = verification
        self._secret: Final = secret
        self._arrival: Final = arrival
        self._now: Final = now_us
        self._url: Final = url

    def findings(self) -> list[Finding]:
        found: list[Finding] = []
        try:
            outcome = self._verify(self._secret, self._arrival, self._url, self._now)
        except ValidationFailed as error:
            places = {item.loc[1] for item in error.items if len(item.loc) > 1}
            if places != {"secrets"}:
                raise
            reasons = "; ".join(item.msg for item in error.items)
            found.append(Finding(fault=Fault.SECRET_FORM, message=reasons))
            return [*found, *self._other_secrets()]
        match outcome:
            case Verified() | Handshake():
                message = "the proof fits this secret and these bytes"
                return [Finding(fault=Fault.VERIFIED, message=message)]
            case Refusal(reason=RefusalReason.MISSING_HEADER):
                found.append(
                    Finding(fault=Fault.WRONG_HEADER, message=f"{outcome.detail}.")
                )
                return [*found, *self._lookalikes()]
            case Refusal(reason=RefusalReason.TOO_OLD | RefusalReason.TOO_NEW):
                return [Finding(fault=Fault.CLOCK, message=outcome.detail)]
            case Refusal(reason=RefusalReason.MALFORMED):
                found.append(
                    Finding(fault=Fault.WRONG_HEADER, message=f"{outcome.detail}.")
                )
                return [*found, *self._milliseconds(), *self._lookalikes()]
            case _:
                pass
        found += self._other_secrets()
        found += self._other_bodies()
        found += self._other_urls()
        if found:
            return found
        message = (
            "no way to sign these bytes with this secret gives this proof: another"
            " secret (of another webhook, or rotated away), or the request was changed"
            " on the way"
        )
        return [Finding(fault=Fault.MISMATCH, message=message)]

    def _verify(self, secret: str, arrival: Arrival, url: str | None, now: int) -> Any:
        check = compile_check(
            self._verification, [secret] if secret else [], public_url=url
        )
        return check.verify(arrival, now)

    def _holds(
        self,
        secret: str | None = None,
        arrival: Arrival | None = None,
        url: str | None = None,
    ) -> bool:
        try:
            outcome = self._verify(
                self._secret if secret is None else secret,
                arrival or self._arrival,
                url or self._url,
                self._now,
            )
        except ValidationFailed:
            return False
        return isinstance(outcome, Verified | Handshake)

    def _other_secrets(self) -> Iterator[Finding]:
        for how, other in _secrets(self._secret):
            if other and other != self._secret and self._holds(secret=other):
                yield Finding(
                    fault=Fault.SECRET_FORM, message=f"the sender signs {how}"
                )
                return

    def _other_bodies(self) -> Iterator[Finding]:
        for how, body in rewritings(self._arrival.body):
            other = msgspec.structs.replace(self._arrival, body=body)
            if body != self._arrival.body and self._holds(arrival=other):
                yield Finding(
                    fault=Fault.REENCODED_BODY,
                    message=f"the proof fits the body {how}: these are not the bytes"
                    " that were sent. Verify the raw body, before any parsing",
                )
                return

    def _other_urls(self) -> Iterator[Finding]:
        base = self._url or self._arrival.url
        for other in _urls(base):
            if other != base and self._holds(url=other):
                yield Finding(
                    fault=Fault.OTHER_URL,
                    message=f"the sender signed the URL {other}, not {base}: set that"
                    " as the source's publicUrl",
                )
                return

    def _milliseconds(self) -> Iterator[Finding]:
        for name, value in self._arrival.headers:
            text = value.decode("latin-1")
            if b"timestamp" in name and text.isdigit() and len(text) == 13:
                yield Finding(
                    fault=Fault.CLOCK,
                    message=f"{name.decode('latin-1')} looks like milliseconds; it"
                    " holds seconds",
                )

    def _lookalikes(self) -> Iterator[Finding]:
        if self._verification.preset == "github" and self._arrival.first(
            "x-hub-signature"
        ):
            yield Finding(
                fault=Fault.WEAK_HASH,
                message="there is only the SHA-1 signature: it is not accepted; let the"
                " sender make x-hub-signature-256",
            )
        for preset in PRESETS.values():
            header = str(preset.with_.get("header", ""))
            if preset.name in {"standard-webhooks", "svix"}:
                header = "svix-id" if preset.name == "svix" else "webhook-id"
            known = preset.name not in {self._verification.preset, "meta", "bearer"}
            if header and known and self._arrival.first(header) is not None:
                yield Finding(
                    fault=Fault.OTHER_PRESET,
                    message=f"{header} is there: this looks like {preset.title}"
                    f" (preset {preset.name})",
                )


def _secrets(text: str) -> Iterator[tuple[str, str]]:
    """Yield the secret in the forms that people confuse."""
    yield "with the secret without the white space around it", text.strip()
    for prefix in ("whsec_", "whsk_"):
        bare = text.strip().removeprefix(prefix)
        if bare != text.strip():
            yield f"with the secret without {prefix}", bare
        else:
            yield f"with the secret behind {prefix}", prefix + text.strip()
    encoded = base64.b64encode(text.strip().encode(errors="replace")).decode()
    yield (
        "with the secret's text as the key, which is whsec_ and base64 here",
        f"whsec_{encoded}",
    )
    for how, decode in (("base64", base64.b64decode), ("hex", bytes.fromhex)):
        try:
            raw = decode(text.strip())
            yield f"with the bytes that the secret is the {how} of", raw.decode()
        except (ValueError, binascii.Error):
            continue
    yield "with the secret and a line break behind it", text + "\n"


def _urls(base: str) -> Iterator[str]:
    """Yield a URL as proxies and consoles commonly change it."""
    scheme, _, rest = base.partition("://")
    other = {"http": "https", "https": "http"}.get(scheme, scheme)
    for name in (scheme, other):
        for path in (rest, rest.rstrip("/"), rest.rstrip("/") + "/"):
            yield f"{name}://{path}"
            host, slash, after = path.partition("/")
            port = "443" if name == "https" else "80"
            yield f"{name}://{host.partition(':')[0]}{slash}{after}"
            yield f"{name}://{host.partition(':')[0]}:{port}{slash}{after}"
