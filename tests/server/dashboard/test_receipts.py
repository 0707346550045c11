"""The inbox's pages: what arrived, what was refused, and for whom they exist."""

from __future__ import annotations

import httpx

from tests.inbox.world import SECRET, hook, make_source, send
from tests.server.running import Service


async def test_a_source_and_its_receipt_are_shown_without_secrets_or_markup(
    service: Service, app: str
):
    inbox = service.engine.inbox
    source = await make_source(inbox, uid="gh", app=app)
    body = b'{"action": "<script>alert(1)</script>"}'
    credential = ((b"authorization", b"Bearer hunter2"),)
    good = await send(inbox, "gh", hook("d-1", body=body, headers=credential))
    await send(inbox, "gh", hook("d-2", secret="wrong"))
    async with httpx.AsyncClient(
        base_url=service.url, auth=("", service.key)
    ) as reader:
        listed = (await reader.get("/sources")).text
        assert f'href="/source/{source.id}"' in listed
        shown = (await reader.get(f"/source/{source.id}")).text
        assert f"{service.url}/in/gh" in shown
        assert f'href="/receipt/{good.receipt}"' in shown
        assert "bad_signature" in shown
        one = (await reader.get(f"/receipt/{good.receipt}")).text
        assert "x-hub-signature-256: sha256=" in one
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in one
        for text in (listed, shown, one):
            assert "<script" not in text
            assert SECRET not in text
            assert "hunter2" not in text
        assert (await reader.get("/receipt/rcpt_x")).status_code == 404
    for key in (
        await service.make_key("read", app=app),
        await service.make_key("admin", tenant="stranger"),
    ):
        async with httpx.AsyncClient(base_url=service.url, auth=("", key)) as stranger:
            for path in (f"/source/{source.id}", f"/receipt/{good.receipt}"):
                assert (await stranger.get(path)).status_code == 404
