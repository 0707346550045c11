"""Routes that the published clients know and this server does not offer: 501.

They answer `not_offered` as JSON, because an empty 404 breaks the clients' own parsing.
No key is needed: nothing is behind them.
"""

from typing import Final

from fastapi import FastAPI, Request, Response

from tenure.errors import NotOffered

APP: Final = "/api/v1/app/{app_id}"
ENDPOINT: Final = APP + "/endpoint/{endpoint_id}"
SOURCE: Final = "/ingest/api/v1/source"
SINK: Final = "/api/v1/stream/{stream_id}/sink"
OPERATIONAL: Final = "/api/v1/operational-webhook/endpoint"

ROUTES: Final[tuple[tuple[str, str], ...]] = (
    # Of the API whose shapes this server speaks, but not offered yet.
    ("POST", ENDPOINT + "/recover"),
    ("POST", ENDPOINT + "/send-example"),
    ("POST", "/api/v1/auth/app-portal-access/{app_id}"),
    ("POST", "/api/v1/auth/dashboard-access/{app_id}"),
    # Known to the clients only.
    ("POST", APP + "/msg/precheck/active"),
    ("POST", APP + "/msg/bulk-expunge"),
    ("POST", APP + "/msg/expunge-all-contents"),
    ("GET", APP + "/poller/{sink_id}"),
    ("GET", APP + "/poller/{sink_id}/consumer/{consumer_id}"),
    ("POST", APP + "/poller/{sink_id}/consumer/{consumer_id}/seek"),
    ("GET", APP + "/polling-endpoint/{sink_id}/consumer/{consumer_id}"),
    ("POST", APP + "/polling-endpoint/{sink_id}/consumer/{consumer_id}/commit"),
    ("POST", ENDPOINT + "/replay-missing"),
    ("POST", ENDPOINT + "/bulk-replay"),
    ("GET", ENDPOINT + "/attempt-stats"),
    ("GET PATCH", ENDPOINT + "/transformation"),
    ("PUT", ENDPOINT + "/auto-config"),
    ("POST", APP + "/autoconfig"),
    ("GET DELETE", APP + "/autoconfig/{autoconfig_id}"),
    ("POST", APP + "/autoconfig/{autoconfig_id}/rotate"),
    ("PUT", APP + "/autoconfig/{autoconfig_id}/endpoint"),
    ("PUT", APP + "/autoconfig/{autoconfig_id}/destination"),
    ("GET POST", APP + "/destination"),
    ("GET PUT PATCH DELETE", APP + "/destination/{destination_id}"),
    ("POST", APP + "/destination/{destination_id}/secret/rotate"),
    ("GET PATCH", APP + "/destination/{destination_id}/transformation"),
    ("GET POST", APP + "/integration"),
    ("GET PUT DELETE", APP + "/integration/{integ_id}"),
    ("POST", APP + "/integration/{integ_id}/key/rotate"),
    ("POST", "/api/v1/auth/app/{app_id}/expire-all"),
    ("POST", "/api/v1/auth/stream-portal-access/{stream_id}"),
    ("POST", "/api/v1/auth/stream-logout"),
    ("POST", "/api/v1/auth/stream/{stream_id}/expire-all"),
    ("GET", "/api/v1/auth/stream/{stream_id}/sink/{sink_id}/poller/token"),
    ("POST", "/api/v1/auth/stream/{stream_id}/sink/{sink_id}/poller/token/rotate"),
    ("GET POST", "/api/v1/connector"),
    ("GET PUT PATCH DELETE", "/api/v1/connector/{connector_id}"),
    ("POST", "/api/v1/environment/export"),
    ("POST", "/api/v1/environment/import"),
    ("POST", "/api/v1/event-type/import/openapi"),
    ("POST", "/api/v1/stats/usage/app"),
    ("PUT", "/api/v1/stats/usage/event-types"),
    ("GET POST", OPERATIONAL),
    ("GET PUT DELETE", OPERATIONAL + "/{endpoint_id}"),
    ("GET PUT", OPERATIONAL + "/{endpoint_id}/headers"),
    ("GET", OPERATIONAL + "/{endpoint_id}/secret"),
    ("POST", OPERATIONAL + "/{endpoint_id}/secret/rotate"),
    ("GET POST", "/api/v1/stream/event-type"),
    ("GET PUT PATCH DELETE", "/api/v1/stream/event-type/{name}"),
    ("GET POST", "/api/v1/stream"),
    ("GET PUT PATCH DELETE", "/api/v1/stream/{stream_id}"),
    ("POST", "/api/v1/stream/{stream_id}/events"),
    ("GET POST", SINK),
    ("GET PUT PATCH DELETE", SINK + "/{sink_id}"),
    ("GET", SINK + "/{sink_id}/events"),
    ("GET PATCH", SINK + "/{sink_id}/headers"),
    ("GET", SINK + "/{sink_id}/secret"),
    ("POST", SINK + "/{sink_id}/secret/rotate"),
    ("GET PATCH", SINK + "/{sink_id}/transformation"),
    ("GET POST", SOURCE),
    ("GET PUT DELETE", SOURCE + "/{source_id}"),
    ("POST", SOURCE + "/{source_id}/token/rotate"),
    ("POST", SOURCE + "/{source_id}/dashboard"),
    ("GET POST", SOURCE + "/{source_id}/endpoint"),
    ("GET PUT DELETE", SOURCE + "/{source_id}/endpoint/{endpoint_id}"),
    ("GET PUT", SOURCE + "/{source_id}/endpoint/{endpoint_id}/headers"),
    ("GET", SOURCE + "/{source_id}/endpoint/{endpoint_id}/secret"),
    ("POST", SOURCE + "/{source_id}/endpoint/{endpoint_id}/secret/rotate"),
    ("GET PATCH", SOURCE + "/{source_id}/endpoint/{endpoint_id}/transformation"),
)
"""Methods and path of each route, in the order in which they are matched."""


async def not_offered(request: Request) -> Response:
    """Refuse with 501 and say which route it was."""
    raise NotOffered(f"{request.method} {request.url.path} is not offered here")


def install(app: FastAPI) -> None:
    """Add the routes after all others; they are not in the OpenAPI document."""
    for methods, path in ROUTES:
        app.router.add_route(
            path, not_offered, methods=methods.split(), include_in_schema=False
        )
