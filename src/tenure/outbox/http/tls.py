"""TLS for outbound connections: 1.2 or later, verified unless told otherwise."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Final

import certifi

# X509_V_ERR_* numbers that people can act on; the rest keep OpenSSL's words.
_VERIFY: Final = {
    9: "certificate is not yet valid",
    10: "certificate has expired",
    18: "certificate is self-signed",
    19: "certificate is self-signed (in its chain)",
    20: "certificate is from an unknown issuer",
    21: "certificate is from an unknown issuer",
    62: "certificate is for another host",
    64: "certificate is for another address",
}
_VERSION_REASONS: Final = frozenset(
    {
        "NO_PROTOCOLS_AVAILABLE",
        "TLSV1_ALERT_PROTOCOL_VERSION",
        "UNSUPPORTED_PROTOCOL",
        "VERSION_TOO_LOW",
    }
)


class TlsContexts:
    """The two contexts that sends choose from, made when first needed.

    Trust is the system's store, or certifi's where the system has none; `extra_ca_pem`
    adds authorities of this deployment.
    """

    __slots__ = ("_extra_ca_pem", "_unverified", "_verified")

    def __init__(self, extra_ca_pem: str | None = None) -> None:
        self._extra_ca_pem: Final = extra_ca_pem
        self._verified: ssl.SSLContext | None = None
        self._unverified: ssl.SSLContext | None = None

    async def context(self, *, verify: bool) -> ssl.SSLContext:
        """Return the context for one policy; the first call reads the trust store."""
        if verify:
            if self._verified is None:
                self._verified = await asyncio.to_thread(
                    _verified_context, self._extra_ca_pem
                )
            return self._verified
        if self._unverified is None:
            context = _context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            self._unverified = context
        return self._unverified


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _verified_context(extra_ca_pem: str | None) -> ssl.SSLContext:
    context = _context()
    paths = ssl.get_default_verify_paths()
    folder = Path(paths.capath) if paths.capath else None
    if paths.cafile or (folder and folder.is_dir() and any(folder.iterdir())):
        context.load_default_certs()
    else:
        context.load_verify_locations(certifi.where())
    if extra_ca_pem is not None:
        context.load_verify_locations(cadata=extra_ca_pem)
    return context


def tls_text(error: ssl.SSLError) -> str:
    """Name the cause of a failed handshake in words that say what to fix."""
    if isinstance(error, ssl.SSLCertVerificationError):
        named = _VERIFY.get(error.verify_code)
        return named or f"certificate refused: {error.verify_message}"
    reason = error.reason or ""
    if reason in _VERSION_REASONS:
        return f"TLS version is too old or not shared ({reason})"
    if reason in {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"}:
        return f"peer does not speak TLS ({reason})"
    return f"TLS handshake failed ({reason or type(error).__name__})"
