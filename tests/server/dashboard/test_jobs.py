"""The pages of schedules: what fires, what a run did, and for whom they exist."""

from __future__ import annotations

import httpx

from tests.server.running import Service, until


async def test_jobs_and_runs_are_shown_without_markup_of_others(
    service: Service, app: str, client: httpx.AsyncClient
):
    sent = {"application": app, "event_type": "<script>", "payload": {"of": "ours"}}
    made = {
        "name": "hourly",
        "calls": "builtin:send",
        "args": sent,
        "schedule": {"cron": "0 * * * *", "zone": "Europe/Rome"},
    }
    job = (await client.post("/api/v1/job", json=made)).json()["id"]
    run = (await client.post(f"/api/v1/job/{job}/trigger", json={"note": "<b>"})).json()

    async def ended() -> str:
        found = (await client.get(f"/api/v1/run/{run['id']}")).json()
        return "" if not found["tries"] else str(found["tries"][0]["reason"])

    assert "eventType" in await until(ended, bool)  # such a type is no event type
    often = {"name": "often", "calls": job, "schedule": {"every": "1d"}}
    other = (await client.post("/api/v1/job", json=often | {"args": sent})).json()["id"]
    async with httpx.AsyncClient(
        base_url=service.url, auth=("", service.key)
    ) as reader:
        assert "interval" in (await reader.get(f"/job/{other}")).text
        assert "when a run is submitted" in (await reader.get("/job/builtin:send")).text
        listed = (await reader.get("/jobs")).text
        assert f'href="/job/{job}"' in listed
        shown = (await reader.get(f"/job/{job}")).text
        assert "0 * * * *" in shown
        assert f'href="/run/{run["id"]}"' in shown
        one = (await reader.get(f"/run/{run['id']}")).text
        assert "&lt;script&gt;" in one
        assert "by bootstrap key: &lt;b&gt;" in one
        assert "failed" in one
        for text in (listed, shown, one):
            assert "<script" not in text
            assert "<b>" not in text
        assert (await reader.get("/run/run_x")).status_code == 404
    for key in (
        await service.make_key("read", app=app),
        await service.make_key("admin", tenant="stranger"),
    ):
        async with httpx.AsyncClient(base_url=service.url, auth=("", key)) as stranger:
            for path in (f"/job/{job}", f"/run/{run['id']}"):
                assert (await stranger.get(path)).status_code == 404
