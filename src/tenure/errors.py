"""Every error that Tenure raises, as one tree.

::

    TenureError                      code, HTTP status, exit code, message, detail
    ├── Refused                      the caller may not, or asked for what cannot be
    │   ├── BadRequest  InvalidRange  MissingPayload  LimitReached  400
    │   ├── AuthenticationFailed                                    401
    │   ├── Forbidden                                               403
    │   ├── NotFound                                                404
    │   ├── MethodNotAllowed                                        405
    │   ├── RequestTooSlow                                          408
    │   ├── Conflict  EventTypeExists  IdempotencyKeyReused
    │   │   NodesBehind  NameAmbiguous  WindowSucceeded             409
    │   ├── PayloadExpunged                                         410
    │   ├── PayloadTooLarge                                         413
    │   ├── ValidationFailed                                        422
    │   ├── RateLimited                                             429
    │   ├── HeadersTooLarge                                         431
    │   ├── NotOffered                                              501
    │   ├── NotJoinable              (a caller's transaction that cannot be joined)
    │   └── ConfigInvalid  WrongKeyRing  WrongDeployment
    │       SchemaTooNew  SchemaOutOfRange         (a start that is refused)
    ├── Unavailable                  the world failed; the same call may succeed later
    │   └── DatabaseUnavailable  ServerUnreachable
    │       QueueFull  Draining                                     503
    └── Broken                       our own invariant does not hold; stop
        └── InvariantViolated                                       500

A leaf names its stable code, its HTTP status and its exit code once, as class
attributes; the API, the command line and the reference derive theirs from here.
A message says what happened, to what, and what to change.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

__all__ = [
    "AuthenticationFailed",
    "BadRequest",
    "Broken",
    "ConfigInvalid",
    "Conflict",
    "DatabaseUnavailable",
    "Draining",
    "EventTypeExists",
    "Forbidden",
    "HeadersTooLarge",
    "IdempotencyKeyReused",
    "InvalidRange",
    "InvariantViolated",
    "LimitReached",
    "MethodNotAllowed",
    "MissingPayload",
    "NameAmbiguous",
    "NodesBehind",
    "NotFound",
    "NotJoinable",
    "NotOffered",
    "PayloadExpunged",
    "PayloadTooLarge",
    "QueueFull",
    "RateLimited",
    "Refused",
    "RequestTooSlow",
    "SchemaOutOfRange",
    "SchemaTooNew",
    "ServerUnreachable",
    "TenureError",
    "Unavailable",
    "ValidationFailed",
    "ValidationItem",
    "WindowSucceeded",
    "WrongDeployment",
    "WrongKeyRing",
    "leaves",
]

# Exit codes. 2 is what shells and typer use for a wrong call; 69, 70 and 77 are
# EX_UNAVAILABLE, EX_SOFTWARE and EX_NOPERM of sysexits.h.
EXIT_REFUSED: Final = 1
EXIT_CONFIG: Final = 2
EXIT_NOT_FOUND: Final = 3
EXIT_CONFLICT: Final = 4
EXIT_UNAVAILABLE: Final = 69
EXIT_BROKEN: Final = 70
EXIT_NOT_ALLOWED: Final = 77


class TenureError(Exception):
    """Anything that Tenure refuses, cannot reach, or finds broken.

    ``detail`` holds machine-readable facts beside the message (ids, bounds); it never
    holds a secret, so it may be logged and shown.
    """

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = EXIT_BROKEN

    def __init__(self, message: str, **detail: object) -> None:
        super().__init__(message)
        self.message: Final = message
        self.detail: Final = detail


class Refused(TenureError):
    """The caller may not do this, or asked for something that cannot be."""


class Unavailable(TenureError):
    """The world failed: the same call may succeed after ``retry_after`` seconds."""

    def __init__(
        self, message: str, *, retry_after: float = 1.0, **detail: object
    ) -> None:
        super().__init__(message, **detail)
        self.retry_after: Final = retry_after


class Broken(TenureError):
    """An invariant of our own does not hold; going on would make it worse."""


class BadRequest(Refused):
    """The request cannot be understood: malformed JSON, a header that is no header."""

    code = "generic_error"
    status = 400
    exit_code = EXIT_REFUSED


class InvalidRange(Refused):
    """The span of time asked for is too long, ends before it starts or lies ahead."""

    code = "invalid_range"
    status = 400
    exit_code = EXIT_REFUSED


class MissingPayload(Refused):
    """A message came without the body that should be delivered."""

    code = "missing_payload"
    status = 400
    exit_code = EXIT_REFUSED


class LimitReached(Refused):
    """One more would pass a bound of limits.py or of the deployment."""

    code = "limit_reached"
    status = 400
    exit_code = EXIT_REFUSED


class AuthenticationFailed(Refused):
    """No key was given, or one that is unknown, expired or revoked."""

    code = "authentication_failed"
    status = 401
    exit_code = EXIT_NOT_ALLOWED


class Forbidden(Refused):
    """The key is known but its scope does not reach this."""

    code = "insufficient_access"
    status = 403
    exit_code = EXIT_NOT_ALLOWED


class NotFound(Refused):
    """Nothing of this id or uid exists for the caller's tenant."""

    code = "not_found"
    status = 404
    exit_code = EXIT_NOT_FOUND


class MethodNotAllowed(Refused):
    """The path exists but not for this HTTP method."""

    code = "method_not_allowed"
    status = 405
    exit_code = EXIT_REFUSED


class RequestTooSlow(Refused):
    """The request's body did not arrive in time; nothing was stored."""

    code = "request_too_slow"
    status = 408
    exit_code = EXIT_UNAVAILABLE


class Conflict(Refused):
    """Something of this name exists already, or changed since it was read."""

    code = "conflict"
    status = 409
    exit_code = EXIT_CONFLICT


class NodesBehind(Refused):
    """An open node does not understand the schema that would be: end or update it."""

    code = "nodes_behind"
    status = 409
    exit_code = EXIT_CONFLICT


class EventTypeExists(Refused):
    """An event type of this name exists already."""

    code = "event_type_exists"
    status = 409
    exit_code = EXIT_CONFLICT


class WindowSucceeded(Refused):
    """The window's run has succeeded, so it is fired again by force only."""

    code = "window_succeeded"
    status = 409
    exit_code = EXIT_CONFLICT


class NameAmbiguous(Refused):
    """Several packages hold the name: say which by `package:name`."""

    code = "name_ambiguous"
    status = 409
    exit_code = EXIT_CONFLICT


class IdempotencyKeyReused(Refused):
    """The same Idempotency-Key came with another body."""

    code = "idempotency_key_reused"
    status = 409
    exit_code = EXIT_CONFLICT


class PayloadExpunged(Refused):
    """The message exists but its payload was removed, so it cannot be sent again."""

    code = "payload_expunged"
    status = 410
    exit_code = EXIT_CONFLICT


class PayloadTooLarge(Refused):
    """The body is larger than the deployment accepts."""

    code = "payload_too_large"
    status = 413
    exit_code = EXIT_REFUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationItem:
    """One fault of a request: where it is, what is wrong, and its stable type."""

    loc: tuple[str | int, ...]
    msg: str
    type: str

    def as_json(self) -> dict[str, object]:
        """Return the item as the API shows it."""
        return {"loc": list(self.loc), "msg": self.msg, "type": self.type}


class ValidationFailed(Refused):
    """The request is well formed but says something that cannot be."""

    code = "validation_error"
    status = 422
    exit_code = EXIT_REFUSED

    def __init__(self, items: Sequence[ValidationItem]) -> None:
        faults = tuple(items)
        where = "; ".join(
            f"{'.'.join(str(part) for part in item.loc)}: {item.msg}" for item in faults
        )
        super().__init__(where or "the request is not valid")
        self.items: Final = faults

    @classmethod
    def at(
        cls,
        *loc: str | int,
        msg: str,
        type: str = "value_error",  # noqa: A002 - the wire's word
    ) -> "ValidationFailed":
        """Return the error for one fault at ``loc``."""
        return cls([ValidationItem(loc=loc, msg=msg, type=type)])


class RateLimited(Refused):
    """The caller sent more than its rate allows; ``retry_after`` is in seconds."""

    code = "rate_limited"
    status = 429
    exit_code = EXIT_UNAVAILABLE

    def __init__(
        self, message: str, *, retry_after: float = 1.0, **detail: object
    ) -> None:
        super().__init__(message, **detail)
        self.retry_after: Final = retry_after


class HeadersTooLarge(Refused):
    """The request's line and headers are larger than this server reads."""

    code = "headers_too_large"
    status = 431
    exit_code = EXIT_REFUSED


class NotOffered(Refused):
    """The route belongs to the hosted product whose API this server speaks."""

    code = "not_offered"
    status = 501
    exit_code = EXIT_REFUSED


class NotJoinable(Refused):
    """A caller's connection cannot hold a message: autocommit, or another database."""

    code = "not_joinable"
    status = 500
    exit_code = EXIT_CONFIG


class ConfigInvalid(Refused):
    """A setting is unknown, missing or wrong; the message names where it came from."""

    code = "config_invalid"
    status = 500
    exit_code = EXIT_CONFIG


class WrongKeyRing(Refused):
    """The secret keys given do not open what this database holds."""

    code = "wrong_key_ring"
    status = 500
    exit_code = EXIT_CONFIG


class WrongDeployment(Refused):
    """The database belongs to another deployment: a restored or copied database."""

    code = "wrong_deployment"
    status = 500
    exit_code = EXIT_CONFIG


class SchemaTooNew(Refused):
    """A newer release took away what this one needs: start one as new as that."""

    code = "schema_too_new"
    status = 500
    exit_code = EXIT_CONFIG


class SchemaOutOfRange(Refused):
    """The database's schema is older than this release can upgrade or serve."""

    code = "schema_out_of_range"
    status = 500
    exit_code = EXIT_CONFIG


class DatabaseUnavailable(Unavailable):
    """The database did not answer, or answered that it cannot now."""

    code = "database_unavailable"
    status = 503
    exit_code = EXIT_UNAVAILABLE


class ServerUnreachable(Unavailable):
    """The command line got no answer from the server that it should talk to."""

    code = "server_unreachable"
    status = 503
    exit_code = EXIT_UNAVAILABLE


class QueueFull(Unavailable):
    """More callers wait for a commit than this node may hold."""

    code = "queue_full"
    status = 503
    exit_code = EXIT_UNAVAILABLE


class Draining(Unavailable):
    """This node is stopping and takes nothing new; another node may."""

    code = "draining"
    status = 503
    exit_code = EXIT_UNAVAILABLE


class InvariantViolated(Broken):
    """A fact that the whole design rests on is not true of the stored state."""

    code = "invariant_violated"
    status = 500
    exit_code = EXIT_BROKEN


def leaves(root: type[TenureError] = TenureError) -> Iterator[type[TenureError]]:
    """Yield every error that can be raised, in the order of its definition."""
    children = [c for c in root.__subclasses__() if c.__module__ == __name__]
    if not children:
        yield root
    for child in children:
        yield from leaves(child)
