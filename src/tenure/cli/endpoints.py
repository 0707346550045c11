"""`tenure endpoints`: where messages go."""

from contextlib import suppress
from typing import Annotated, Any

import typer

from tenure.cli import options
from tenure.cli.access import APPS_SEARCHED_MAX, Api, find_app
from tenure.cli.hints import hinted
from tenure.cli.screen import when
from tenure.cli.verbs import Call, verb
from tenure.errors import Conflict, EventTypeExists, ValidationFailed
from tenure.limits import SECRET_GRACE_MAX_SECONDS, SECRET_GRACE_SECONDS

endpoints = typer.Typer(help="Where messages go.", no_args_is_help=True)

Ref = Annotated[str, typer.Argument(metavar="ENDPOINT", help="ep_… or its uid.")]


def application(api: Api, uid: str) -> Any:
    """Return the application of this id or uid; one that does not exist is made."""
    return api.post("/api/v1/app", {"name": uid, "uid": uid}, get_if_exists=True)


def create_endpoint(api: Api, app: str, given: dict[str, Any]) -> Any:
    """Make an endpoint; a refusal says which setting would allow it."""
    try:
        return api.post(f"/api/v1/app/{app}/endpoint", given)
    except ValidationFailed as error:
        raise hinted(error, given["url"]) from None


def _row(endpoint: Any) -> tuple[object, ...]:
    state = endpoint.get("disabledReason") or "yes" if endpoint["disabled"] else "no"
    return (endpoint["id"], state, endpoint["url"], endpoint["eventTypes"] or "all")


@verb(endpoints, "list")
def list_endpoints(
    call: Call, app: options.App = None, limit: options.Limit = 100
) -> None:
    """List endpoints, of one application or of all."""
    api = call.api()
    apps = (
        [app]
        if app is not None
        else [found["id"] for found in api.pages("/api/v1/app", APPS_SEARCHED_MAX)]
    )
    found = [
        {"appId": name} | endpoint
        for name in apps
        for endpoint in api.pages(f"/api/v1/app/{name}/endpoint", limit)
    ][:limit]
    if call.screen.as_json:
        call.screen.json(found)
        return
    call.screen.table(
        ("ENDPOINT", "DISABLED", "URL", "EVENT TYPES", "APPLICATION"),
        [(*_row(endpoint), endpoint["appId"]) for endpoint in found],
        empty="no endpoints yet: `tenure endpoints create URL --app NAME` makes one",
    )


@verb(endpoints, "show")
def show(call: Call, ref: Ref, app: options.App = None) -> None:
    """Show one endpoint with its counts of the last 28 days."""
    api = call.api()
    app, found = find_app(api, app, f"/endpoint/{ref}")
    stats = api.get(f"/api/v1/app/{app}/endpoint/{ref}/stats")
    if call.screen.as_json:
        call.screen.json({"appId": app, "stats": stats} | found)
        return
    call.screen.facts(
        {
            "endpoint": found["id"],
            "application": app,
            "uid": found["uid"],
            "url": found["url"],
            "disabled": found["disabled"],
            "because": found.get("disabledReason"),
            "event types": found["eventTypes"] or "all",
            "channels": found["channels"] or "all",
            "created": when(found["createdAt"]),
        }
        | {f"attempts: {name}": count for name, count in stats.items()}
    )


@verb(endpoints, "create")
def create(
    call: Call,
    app: Annotated[
        str, typer.Option("--app", help="Application; made when it does not exist.")
    ],
    url: Annotated[
        str | None,
        typer.Argument(help="http or https; none for a kind that dials nothing."),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            help="http, log, archive, slack, chat (an Apprise URL),"
            " or handler:package.name."
        ),
    ] = "http",
    uid: Annotated[str | None, typer.Option(help="Your own id for it.")] = None,
    event_type: Annotated[
        list[str] | None,
        typer.Option(
            help="Only these; may be given repeatedly; made when they do not exist."
        ),
    ] = None,
    description: Annotated[str, typer.Option(help="For people.")] = "",
) -> None:
    """Make an endpoint and print its signing secret."""
    api = call.api()
    owner = application(api, app)
    for name in event_type or ():
        with suppress(Conflict, EventTypeExists):
            api.post("/api/v1/event-type", {"name": name, "description": ""})
    given: dict[str, Any] = {"url": url or kind, "uid": uid, "description": description}
    if kind != "http":
        given["tenure"] = {"kind": kind}
    made = create_endpoint(api, owner["id"], given | {"eventTypes": event_type or None})
    key = api.get(f"/api/v1/app/{owner['id']}/endpoint/{made['id']}/secret")["key"]
    if call.screen.as_json:
        call.screen.json({"appId": owner["id"], "secret": key} | made)
        return
    call.screen.facts(
        {"endpoint": made["id"], "application": owner["id"], "secret": key}
    )


def _disable(call: Call, ref: str, app: str | None, *, disabled: bool) -> None:
    api = call.api()
    app, found = find_app(api, app, f"/endpoint/{ref}")
    path = f"/api/v1/app/{app}/endpoint/{found['id']}"
    changed = api.patch(path, {"disabled": disabled})
    if call.screen.as_json:
        call.screen.json({"appId": app} | changed)
    elif disabled:
        call.screen.line(f"{found['id']} is disabled; what waits for it is kept")
    else:
        call.screen.line(f"{found['id']} is enabled; what waited goes out now")


@verb(endpoints, "disable")
def disable(call: Call, ref: Ref, app: options.App = None) -> None:
    """Send nothing to an endpoint; its backlog is kept."""
    _disable(call, ref, app, disabled=True)


@verb(endpoints, "enable")
def enable(call: Call, ref: Ref, app: options.App = None) -> None:
    """Send to an endpoint again, its backlog first."""
    _disable(call, ref, app, disabled=False)


@verb(endpoints, "delete")
def delete(
    call: Call, ref: Ref, app: options.App = None, yes: options.Yes = False
) -> None:
    """Delete an endpoint: what waits is cancelled, history stays."""
    api = call.api()
    app, found = find_app(api, app, f"/endpoint/{ref}")
    if not yes and not call.screen.as_json:
        typer.confirm(f"delete {found['id']} ({found['url']})?", abort=True, err=True)
    api.delete(f"/api/v1/app/{app}/endpoint/{found['id']}")
    if call.screen.as_json:
        call.screen.json({"deleted": found["id"]})
    else:
        call.screen.line(f"{found['id']} is deleted")


@verb(endpoints, "rotate")
def rotate(
    call: Call,
    ref: Ref,
    app: options.App = None,
    grace: Annotated[
        int,
        typer.Option(
            "--grace-seconds",
            min=0,
            max=SECRET_GRACE_MAX_SECONDS,
            help="How long the old secret signs on beside the new one.",
        ),
    ] = SECRET_GRACE_SECONDS,
) -> None:
    """Give an endpoint a new signing secret and print it."""
    api = call.api()
    app, found = find_app(api, app, f"/endpoint/{ref}")
    path = f"/api/v1/app/{app}/endpoint/{found['id']}/secret"
    api.post(f"{path}/rotate", {"gracePeriodSeconds": grace})
    key = api.get(path)["key"]
    if call.screen.as_json:
        call.screen.json({"endpoint": found["id"], "secret": key})
    else:
        call.screen.line(key)
        call.screen.note(f"the old secret signs on for {grace} s beside it")


@verb(endpoints, "secret")
def secret(call: Call, ref: Ref, app: options.App = None) -> None:
    """Print an endpoint's signing secret."""
    api = call.api()
    app, found = find_app(api, app, f"/endpoint/{ref}")
    key = api.get(f"/api/v1/app/{app}/endpoint/{found['id']}/secret")["key"]
    if call.screen.as_json:
        call.screen.json({"endpoint": found["id"], "secret": key})
    else:
        call.screen.line(key)
