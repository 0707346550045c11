"""Pages of the inbox: sources, one source with what arrived and was refused, a receipt.

For keys of the whole tenant; to a key of one application they do not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenure.errors import NotFound
from tenure.inbox.model import ReceiptFilter
from tenure.inbox.verification import HINTS
from tenure.outbox.model import PageIn

if TYPE_CHECKING:
    from fastapi import Request, Response

    from tenure.outbox.model import Caller
    from tenure.server.dashboard.page import Pages
    from tenure.server.site import Site

__all__ = ["receipt", "source", "sources"]

SOURCES_SHOWN: Final = 100
RECEIPTS_SHOWN: Final = 25
BODY_SHOWN: Final = 16 * 1024


def _check(caller: Caller) -> None:
    if caller.app is not None:
        raise NotFound("this key is limited to one application")


async def sources(
    pages: Pages, site: Site, request: Request, caller: Caller
) -> Response:
    """Show every source."""
    _check(caller)
    found = await site.inbox.list_sources(caller.tenant, PageIn(limit=SOURCES_SHOWN))
    return pages.render(request, "sources.html", sources=found.data)


async def source(
    pages: Pages, site: Site, request: Request, caller: Caller
) -> Response:
    """Show one source: its URL, what arrived, what was refused and why."""
    _check(caller)
    inbox = site.inbox
    found = await inbox.get_source(caller.tenant, str(request.path_params["source_id"]))
    last = await inbox.list_receipts(
        caller.tenant, PageIn(limit=RECEIPTS_SHOWN), ReceiptFilter(source=found.id)
    )
    base = str(request.base_url).rstrip("/")
    return pages.render(
        request,
        "source.html",
        source=found,
        url=found.settings.public_url or f"{base}/in/{found.path}",
        receipts=last.data,
        refused=await inbox.refusals(caller.tenant, found.id),
        hints={str(reason): hint for reason, hint in HINTS.items()},
    )


async def receipt(
    pages: Pages, site: Site, request: Request, caller: Caller
) -> Response:
    """Show one receipt: its header lines, its bytes, its messages."""
    _check(caller)
    ref = str(request.path_params["receipt_id"])
    found = await site.inbox.get_receipt(caller.tenant, ref)
    body = found.body or b""
    return pages.render(
        request,
        "receipt.html",
        receipt=found.receipt,
        query=found.query,
        headers=found.headers,
        made=found.made,
        body=body[:BODY_SHOWN].decode(errors="replace"),
        expunged=found.body is None,
        cut=len(body) > BODY_SHOWN,
        shown=BODY_SHOWN,
    )
