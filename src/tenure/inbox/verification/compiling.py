"""From a verification and its secrets to a check; what cannot work is refused here."""

from __future__ import annotations

import base64
import binascii
import re
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, Final, TypeVar

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    load_der_public_key,
    load_pem_public_key,
)

from tenure.clock import US
from tenure.errors import ValidationFailed, ValidationItem
from tenure.inbox.verification import proofs
from tenure.inbox.verification.checks import Check
from tenure.inbox.verification.presets import PRESETS, Preset, Scheme, Shake
from tenure.limits import (
    SIGNATURE_TOLERANCE_SECONDS,
    SOURCE_NETWORKS_MAX,
    SOURCE_SECRETS_MAX,
    TOLERANCE_MAX_SECONDS,
)
from tenure.outbox.secrets import ED25519_PUBLIC_PREFIX, parse_secret
from tenure.outbox.signing import parse_public

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tenure.inbox.verification.model import Verification
    from tenure.inbox.verification.proofs import Proof

__all__ = ["compile_check"]

T = TypeVar("T")
_COMMON: Final = frozenset({"tolerance_seconds", "format", "strict_replay"})
_ALGORITHMS: Final = ("sha1", "sha256", "sha384", "sha512")
_ENCODINGS: Final = ("hex", "base64", "base64url")
_PART: Final = re.compile(r"(\{(?:body|timestamp|url|header:[a-z0-9-]+)\})")
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VERIFY: Final = b"verify:"
_SECRETLESS: Final = frozenset({Scheme.NETWORKS, Scheme.NOTHING})


def compile_check(
    verification: Verification,
    secrets: Sequence[str],
    *,
    public_url: str | None = None,
) -> Check:
    """Return what judges the requests of a source.

    Raises ValidationFailed that names each option or secret that cannot work.
    """
    return _Compiler(verification, secrets, public_url).check()


class _Compiler:
    """Reads options and secrets, gathering every fault."""

    def __init__(
        self, verification: Verification, secrets: Sequence[str], url: str | None
    ) -> None:
        self._faults: Final[list[ValidationItem]] = []
        self._given: Final[Mapping[str, Any]] = verification.options
        self._secrets: Final = secrets
        self._url: Final = url
        self._name: Final = verification.preset

    def check(self) -> Check:
        preset = PRESETS.get(self._name)
        if preset is None:
            names = ", ".join(PRESETS)
            self._fault(
                f"{self._name[:100]!r} is no preset; there are {names}", "preset"
            )
            self._done()
            raise AssertionError
        self._known(preset)
        tolerance = self._number(
            "tolerance_seconds", SIGNATURE_TOLERANCE_SECONDS, TOLERANCE_MAX_SECONDS
        )
        counted = self._counted(preset)
        tokens = tuple(each for each in counted if each.startswith(_VERIFY))
        if preset.shake is not Shake.META:
            tokens = ()
        keys = tuple(each for each in counted if each not in tokens)
        if tokens and not keys:
            self._secret_fault(None, f"{preset.name} needs one: {preset.secret}")
        proof = self._proof(preset, keys, round(tolerance * US))
        format_ = self._choice("format", ("plain", "cloudevents"), "plain")
        strict = self._given.get("strict_replay", False)
        if not isinstance(strict, bool):
            self._fault("true or false", "options", "strict_replay")
        self._done()
        if proof is None:
            raise AssertionError
        header = getattr(proof, "header", "authorization")
        credential = preset.scheme in {Scheme.TOKEN, Scheme.BASIC}
        return Check(
            preset=preset,
            proof=proof,
            keys=keys,
            verify_tokens=tuple(each.removeprefix(_VERIFY) for each in tokens),
            cloudevents=format_ == "cloudevents",
            strict_replay=bool(strict),
            credential_headers=frozenset({header}) if credential else frozenset(),
        )

    # --- faults ----------------------------------------------------------------------

    def _fault(self, msg: str, *loc: str | int) -> None:
        place = ("body", "verification", *loc)
        self._faults.append(ValidationItem(loc=place, msg=msg, type="value_error"))

    def _done(self) -> None:
        if self._faults:
            raise ValidationFailed(self._faults)

    def _known(self, preset: Preset) -> None:
        allowed = _COMMON | preset.settable
        for name in sorted(self._given.keys() - allowed):
            known = ", ".join(sorted(allowed))
            self._fault(
                f"{preset.name} has no such option; it has {known}", "options", name
            )
        for name in sorted(preset.required - self._given.keys()):
            self._fault(f"{preset.name} needs it", "options", name)

    # --- options ---------------------------------------------------------------------

    def _number(self, name: str, default: float, most: float) -> float:
        value = self._given.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._fault("a number of seconds", "options", name)
            return default
        if not 1 <= value <= most:
            self._fault(f"1 to {most:.0f} seconds", "options", name)
            return default
        return float(value)

    def _text(self, name: str, default: T) -> str | T:
        value = self._given.get(name, default)
        if value is default:
            return default
        if not isinstance(value, str) or not value or len(value) > 1000:
            self._fault("a text of 1 to 1000 characters", "options", name)
            return default
        return value

    def _choice(self, name: str, values: Sequence[str], default: str) -> str:
        value = self._given.get(name, default)
        if value not in values:
            self._fault(f"one of {', '.join(values)}", "options", name)
            return default
        return str(value)

    def _header(self, default: str) -> str:
        value = self._text("header", default)
        if _NAME.fullmatch(value) is None:
            self._fault("the name of a header", "options", "header")
        return value.lower()

    # --- secrets ---------------------------------------------------------------------

    def _counted(self, preset: Preset) -> tuple[bytes, ...]:
        if preset.scheme in _SECRETLESS:
            if self._secrets:
                self._secret_fault(None, f"{preset.name} uses no secret: give none")
            return ()
        if not self._secrets:
            self._secret_fault(None, f"{preset.name} needs one: {preset.secret}")
        if len(self._secrets) > SOURCE_SECRETS_MAX:
            self._secret_fault(None, f"at most {SOURCE_SECRETS_MAX} at once")
        for at, text in enumerate(self._secrets):
            if not text.strip():
                self._secret_fault(at, f"it is empty; wanted: {preset.secret}")
            elif text != text.strip():
                self._secret_fault(at, "white space around it: remove that")
            elif len(text) > 4096:
                self._secret_fault(at, "longer than 4096 characters")
        return tuple(text.encode(errors="surrogatepass") for text in self._secrets)

    def _secret_fault(self, at: int | None, msg: str) -> None:
        loc: tuple[str | int, ...] = ("body", "secrets")
        loc = loc if at is None else (*loc, at)
        self._faults.append(ValidationItem(loc=loc, msg=msg, type="value_error"))

    def _each(self, read: Callable[[str], T]) -> tuple[T, ...]:
        found: list[T] = []
        for at, text in enumerate(self._secrets):
            try:
                found.append(read(text.strip()))
            except ValueError as error:
                if text.strip():
                    self._secret_fault(at, str(error))
        return tuple(found)

    # --- proofs ----------------------------------------------------------------------

    def _proof(
        self, preset: Preset, keys: tuple[bytes, ...], tolerance_us: int
    ) -> Proof | None:
        match preset.scheme:
            case Scheme.STANDARD:
                read = self._each(_standard)
                return proofs.Standard(secrets=read, tolerance_us=tolerance_us)
            case Scheme.HMAC if preset.name == "hmac":
                return self._generic(preset, tolerance_us)
            case Scheme.HMAC:
                known = {**preset.with_}
                moment = known.pop("timestamp", None)
                return proofs.Hmac(
                    keys=keys,
                    url=self._url,
                    timestamp=_moment(moment, tolerance_us),
                    **known,
                )
            case Scheme.TOKEN:
                return proofs.Token(
                    secrets=keys,
                    header=self._header(preset.with_["header"]),
                    prefix=preset.with_.get("prefix", ""),
                )
            case Scheme.BASIC:
                self._each(_user_and_password)
                return proofs.Basic(secrets=keys)
            case Scheme.TWILIO:
                return proofs.Twilio(keys=keys, url=self._url)
            case Scheme.MAILGUN:
                return proofs.Mailgun(keys=keys, tolerance_us=tolerance_us)
            case Scheme.ECDSA | Scheme.ED25519:
                return self._asymmetric(preset, tolerance_us)
            case Scheme.NETWORKS:
                return proofs.Networks(networks=self._networks())
            case Scheme.NOTHING:
                return proofs.Nothing()

    def _asymmetric(self, preset: Preset, tolerance_us: int) -> Proof | None:
        moment = _moment(preset.with_["timestamp"], tolerance_us)
        if moment is None:
            return None
        header = preset.with_["header"]
        if preset.scheme is Scheme.ECDSA:
            return proofs.PublicKey(
                keys=self._each(_ecdsa),
                header=header,
                encoding="base64",
                timestamp=moment,
            )
        return proofs.PublicKey(
            keys=self._each(_ed25519), header=header, encoding="hex", timestamp=moment
        )

    def _generic(self, preset: Preset, tolerance_us: int) -> Proof:
        form = self._choice("secret_encoding", ("text", "hex", "base64"), "text")
        content = self._template()
        timestamp = self._timestamp(tolerance_us)
        if timestamp is None and "{timestamp}" in content:
            self._fault(
                "it signs a {timestamp}: say where that is by `timestamp`",
                "options",
                "signed",
            )
        if timestamp is not None and "{timestamp}" not in content:
            self._fault(
                "`signed` does not hold {timestamp}: an instant that is not signed"
                " proves nothing",
                "options",
                "timestamp",
            )
        member = self._text("member", None)
        if timestamp is not None and timestamp.place == "pair" and member is None:
            self._fault("`pair:` needs a `member`", "options", "timestamp")
        return proofs.Hmac(
            keys=self._each(lambda text: _key(text, form)),
            header=self._header(preset.with_["header"]),
            algorithm=self._choice("algorithm", _ALGORITHMS, "sha256"),
            encoding=self._choice("encoding", _ENCODINGS, "hex"),
            prefix=self._text("prefix", ""),
            member=member,
            content=content,
            timestamp=timestamp,
            url=self._url,
        )

    def _template(self) -> tuple[str, ...]:
        text = self._text("signed", "{body}")
        parts = tuple(part for part in _PART.split(text) if part)
        if "{body}" not in parts:
            self._fault("it must hold {body}", "options", "signed")
        for part in parts:
            if _PART.fullmatch(part) is None and ("{" in part or "}" in part):
                self._fault(
                    f"{part[:50]!r}: braces are for {{body}}, {{timestamp}}, {{url}}"
                    " and {header:name}",
                    "options",
                    "signed",
                )
        return parts

    def _timestamp(self, tolerance_us: int) -> proofs.Timestamp | None:
        text = self._text("timestamp", None)
        unit = self._choice("timestamp_unit", ("s", "ms"), "s")
        if text is None:
            return None
        place, _, name = text.partition(":")
        if place not in {"header", "pair"} or _NAME.fullmatch(name) is None:
            self._fault("`header:name` or `pair:name`", "options", "timestamp")
            return None
        return proofs.Timestamp(
            place=place,
            name=name.lower() if place == "header" else name,
            per_second=1 if unit == "s" else 1000,
            tolerance_us=tolerance_us,
        )

    def _networks(self) -> tuple[Any, ...]:
        given = self._given.get("networks", [])
        if (
            not isinstance(given, list | tuple)
            or not 1 <= len(given) <= SOURCE_NETWORKS_MAX
        ):  # pyright: ignore[reportUnknownArgumentType]
            self._fault(
                f"a list of 1 to {SOURCE_NETWORKS_MAX} CIDR blocks",
                "options",
                "networks",
            )
            return ()
        found: list[Any] = []
        for at, text in enumerate(given):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            try:
                found.append(ip_network(str(text)))  # pyright: ignore[reportUnknownArgumentType]
            except ValueError as error:
                self._fault(str(error), "options", "networks", at)
        return tuple(found)


def _moment(
    known: Mapping[str, Any] | None, tolerance_us: int
) -> proofs.Timestamp | None:
    if known is None:
        return None
    return proofs.Timestamp(**known, tolerance_us=tolerance_us)


def _standard(text: str) -> Any:
    if text.startswith(ED25519_PUBLIC_PREFIX):
        return parse_public(text)
    return parse_secret(text)


def _user_and_password(text: str) -> str:
    user, colon, password = text.partition(":")
    if not (user and colon and password):
        raise ValueError("wanted: user:password")
    return text


def _key(text: str, form: str) -> bytes:
    if form == "text":
        return text.encode(errors="surrogatepass")
    try:
        raw = (
            bytes.fromhex(text)
            if form == "hex"
            else base64.b64decode(text, validate=True)
        )
    except (ValueError, binascii.Error):
        raise ValueError(f"it is not {form}, as secret_encoding says") from None
    if not raw:
        raise ValueError("it holds no byte")
    return raw


def _ecdsa(text: str) -> ec.EllipticCurvePublicKey:
    wanted = "wanted: the verification key as SendGrid shows it (base64 of a P-256 key)"
    try:
        if text.startswith("-----"):
            key = load_pem_public_key(text.encode())
        else:
            key = load_der_public_key(base64.b64decode(text, validate=True))
    except (ValueError, binascii.Error, UnsupportedAlgorithm):
        raise ValueError(wanted) from None
    curve = getattr(key, "curve", None)
    if not (
        isinstance(key, ec.EllipticCurvePublicKey) and isinstance(curve, ec.SECP256R1)
    ):
        raise ValueError(wanted)  # noqa: TRY004 -- the text is wrong, not its type
    return key


def _ed25519(text: str) -> Ed25519PublicKey:
    try:
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(text))
    except ValueError:
        raise ValueError("wanted: the public key, 64 hex digits") from None
