"""Which request this is: an id of the caller's or of ours, in the answer and the log.

A caller's `X-Request-Id` is taken when it is short and printable; anything else would
let a caller write into the log. The id goes back in the same header, stands in the body
of every problem, and in every log line that is written while the request is served.
"""

from collections.abc import Mapping
from typing import Final

from tenure import ids
from tenure.limits import REQUEST_ID_MAX

__all__ = ["HEADER", "request_id"]

HEADER: Final = b"x-request-id"


def request_id(headers: Mapping[bytes, bytes]) -> str:
    """Return the id that the caller gave, or a new one."""
    given = headers.get(HEADER, b"").decode("latin-1")
    good = 0 < len(given) <= REQUEST_ID_MAX and given.isascii() and given.isprintable()
    return given if good else ids.new_id("req")
