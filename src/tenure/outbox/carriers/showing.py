"""A message as people read it: in a chat, or in one line of a log. Pure.

No header is ever shown but the content type, and members of a JSON body whose name says
that they are a credential are masked. Whoever can read a chat or a log may else read
what was meant for one program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from tenure.clock import to_rfc3339
from tenure.limits import CHAT_TEXT, LOGGED_BODY

if TYPE_CHECKING:
    from tenure.outbox.carriers.model import Job

__all__ = ["JSON", "SECRET_NAMES", "chat_text", "content_type", "logged_body"]

JSON: Final = "application/json"
MASK: Final = "***"
SECRET_NAMES: Final = frozenset(
    {
        "accesskey",
        "accesstoken",
        "apikey",
        "authorization",
        "clientsecret",
        "cookie",
        "password",
        "passwd",
        "privatekey",
        "refreshtoken",
        "secret",
        "secretkey",
        "signature",
        "token",
    }
)
"""Names of members whose values are masked, without `_`, `-` and letter case."""
_FENCE: Final = "```"


def content_type(job: Job) -> str:
    """Return the content type of a job's body."""
    return job.content_type or JSON


def chat_text(job: Job, longest: int = CHAT_TEXT) -> str:
    """Return a message for a chat: what it is, and the body in a code block.

    A body longer than `longest` characters is cut, and says so.
    """
    method = "POST" if job.relay is None else job.relay.method
    facts = (
        method,
        content_type(job),
        to_rfc3339(job.created_at),
        f"{len(job.body)} bytes",
    )
    body = _cut(_readable(job, indent=True), longest).replace(_FENCE, "'''")
    return f"{job.event_type}: {', '.join(facts)}\n{_FENCE}\n{body}\n{_FENCE}"


def logged_body(job: Job) -> str:
    """Return a body for one line of the log."""
    return _cut(_readable(job, indent=False), LOGGED_BODY)


def _readable(job: Job, *, indent: bool) -> str:
    kind = content_type(job).partition(";")[0].strip().lower()
    if kind == JSON or kind.endswith("+json"):
        try:
            safe = msgspec.json.encode(_masked(msgspec.json.decode(job.body)))
        except (msgspec.MsgspecError, RecursionError):
            pass  # not what it says: shown as it came
        else:
            return (msgspec.json.format(safe, indent=2) if indent else safe).decode()
    text = job.body.decode("utf-8", "replace")
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {
            name: MASK if _is_secret(name) else _masked(member)
            for name, member in members.items()
        }
    if isinstance(value, list):
        return [_masked(each) for each in cast("list[Any]", value)]
    return value


def _is_secret(name: str) -> bool:
    return name.lower().replace("_", "").replace("-", "") in SECRET_NAMES


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    return f"{text[:longest]}\n… cut: {len(text) - longest} characters more"
