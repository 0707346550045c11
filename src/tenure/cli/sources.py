"""`tenure sources`: where webhooks arrive."""

import json
from typing import Annotated, Any

import typer

from tenure.cli import options
from tenure.cli.endpoints import application
from tenure.cli.screen import when
from tenure.cli.verbs import Call, verb
from tenure.errors import ValidationFailed
from tenure.limits import SECRET_GRACE_MAX_SECONDS, SECRET_GRACE_SECONDS

sources = typer.Typer(help="Where webhooks arrive.", no_args_is_help=True)

_KINDS = {"tls": "nats", "rediss": "redis", "amqps": "amqp"}
"""Brokers by those schemes of their URLs that are not their names."""
Ref = Annotated[str, typer.Argument(metavar="SOURCE", help="src_… or its uid.")]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option", "-o", help="NAME=VALUE of the preset; may be given repeatedly."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="NAME=VALUE of the source's settings (rateCount=100, publicUrl=https://…);"
        " may be given repeatedly.",
    ),
]


def _pairs(given: list[str] | None, what: str) -> dict[str, Any]:
    """Read NAME=VALUE; a value that is JSON counts as such, any other is text."""
    found: dict[str, Any] = {}
    for item in given or ():
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise ValidationFailed.at(what, msg=f"{item!r} is not NAME=VALUE")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _url(call: Call, source: Any) -> str:
    """Return where a source receives, as far as this machine knows."""
    settings = call.settings()
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.host, settings.host)  # noqa: S104
    base: str = call.given("server") or f"http://{host}:{settings.port}"
    return f"{base.rstrip('/')}/in/{source['path']}"


def _show(call: Call, source: Any) -> None:
    url = _url(call, source)
    if call.screen.as_json:
        call.screen.json(source | {"url": url})
        return
    call.screen.facts(
        {
            "source": source["id"],
            "uid": source["uid"],
            "name": source["name"],
            "application": source["appId"],
            "url": url,
            "verification": source["verification"]["preset"],
            "options": source["verification"]["options"] or None,
            "secrets": source["secretCount"],
            "pulls": None if source["pull"] is None else source["pull"]["url"],
            "disabled": source["disabled"],
            "created": when(source["createdAt"]),
        }
    )
    call.screen.note(f"try it: curl -X POST {url} -d '{{}}'")


@verb(sources, "list")
def list_sources(call: Call, limit: options.Limit = 100) -> None:
    """List sources."""
    found = list(call.api().pages("/api/v1/source", limit))
    if call.screen.as_json:
        call.screen.json(found)
        return
    call.screen.table(
        ("SOURCE", "UID", "VERIFICATION", "PATH", "DISABLED", "APPLICATION"),
        [
            (
                each["id"],
                each["uid"] or "",
                each["verification"]["preset"],
                f"/in/{each['path']}",
                "yes" if each["disabled"] else "no",
                each["appId"],
            )
            for each in found
        ],
        empty="no sources yet: `tenure sources create github --secret …` makes one",
    )


@verb(sources, "create")
def create(
    call: Call,
    preset: Annotated[
        str, typer.Argument(help="How it is verified: github, stripe, … or none.")
    ],
    secret: Annotated[
        list[str] | None,
        typer.Option(help="What it is verified with; may be given repeatedly."),
    ] = None,
    uid: Annotated[
        str | None, typer.Option(help="Your own id, and the last part of its URL.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="For people.")] = None,
    app: Annotated[
        str | None,
        typer.Option(
            "--app",
            help="Application; made when it does not exist; unset: one of its own.",
        ),
    ] = None,
    option: Options = None,
    setting: Settings = None,
    pull: Annotated[
        str | None,
        typer.Option(help="Broker to pull from: nats://…, redis://… or amqp://…."),
    ] = None,
    pull_name: Annotated[
        str, typer.Option(help="Subject, stream or queue that is pulled from.")
    ] = "",
) -> None:
    """Make a source and print its URL."""
    api = call.api()
    given: dict[str, Any] = {
        "name": name or uid or preset,
        "uid": uid,
        "appId": app
        if app is None or app.startswith("app_")
        else application(api, app)["id"],
        "verification": {"preset": preset, "options": _pairs(option, "option")},
        "secrets": secret or [],
        "settings": _pairs(setting, "set"),
    }
    if pull is not None:
        scheme = pull.partition("://")[0]
        kind = _KINDS.get(scheme, scheme)
        given["pull"] = {"kind": kind, "url": pull, "name": pull_name}
    _show(call, api.post("/api/v1/source", given))


@verb(sources, "show")
def show(call: Call, ref: Ref) -> None:
    """Show one source and its URL."""
    _show(call, call.api().get(f"/api/v1/source/{ref}"))


@verb(sources, "set")
def change(
    call: Call,
    ref: Ref,
    setting: Settings = None,
    option: Options = None,
    preset: Annotated[
        str | None, typer.Option(help="Verify in another way from now on.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="For people.")] = None,
) -> None:
    """Change a source; settings and options not named stay as they are."""
    api = call.api()
    found = api.get(f"/api/v1/source/{ref}")
    changes: dict[str, Any] = {}
    if name is not None:
        changes["name"] = name
    if setting is not None:
        changes["settings"] = found["settings"] | _pairs(setting, "set")
    if preset is not None or option is not None:
        was = found["verification"]
        same = preset is None or preset == was["preset"]
        changes["verification"] = {
            "preset": preset or was["preset"],
            "options": (was["options"] if same else {}) | _pairs(option, "option"),
        }
    _show(call, api.patch(f"/api/v1/source/{found['id']}", changes))


def _disable(call: Call, ref: str, *, disabled: bool) -> None:
    changed = call.api().patch(f"/api/v1/source/{ref}", {"disabled": disabled})
    if call.screen.as_json:
        call.screen.json(changed)
    elif disabled:
        call.screen.line(f"{changed['id']} is disabled: senders are told 410")
    else:
        call.screen.line(f"{changed['id']} is enabled")


@verb(sources, "disable")
def disable(call: Call, ref: Ref) -> None:
    """Receive nothing there any more; what was accepted is delivered."""
    _disable(call, ref, disabled=True)


@verb(sources, "enable")
def enable(call: Call, ref: Ref) -> None:
    """Receive there again."""
    _disable(call, ref, disabled=False)


@verb(sources, "rotate")
def rotate(
    call: Call,
    ref: Ref,
    secret: Annotated[str, typer.Option(help="The provider's new secret.")],
    grace: Annotated[
        int,
        typer.Option(
            "--grace-seconds",
            min=0,
            max=SECRET_GRACE_MAX_SECONDS,
            help="How long the former secrets count beside it.",
        ),
    ] = SECRET_GRACE_SECONDS,
) -> None:
    """Believe another secret, and the former ones for a while."""
    body = {"secret": secret, "gracePeriodSeconds": grace}
    done = call.api().post(f"/api/v1/source/{ref}/secret/rotate", body)
    if call.screen.as_json:
        call.screen.json(done)
    else:
        call.screen.line(f"{done['id']} believes {done['secretCount']} secrets")


@verb(sources, "delete")
def delete(call: Call, ref: Ref, yes: options.Yes = False) -> None:
    """Delete a source; what it accepted is delivered all the same."""
    api = call.api()
    found = api.get(f"/api/v1/source/{ref}")
    if not yes and not call.screen.as_json:
        typer.confirm(f"delete {found['id']} ({found['name']})?", abort=True, err=True)
    api.delete(f"/api/v1/source/{found['id']}")
    if call.screen.as_json:
        call.screen.json({"deleted": found["id"]})
    else:
        call.screen.line(f"{found['id']} is deleted")


@verb(sources, "refused")
def refused(call: Call, ref: Ref) -> None:
    """Say what a source refused, how often, and what to look at."""
    found = call.api().get(f"/api/v1/source/{ref}/refused")
    if call.screen.as_json:
        call.screen.json(found)
        return
    for reason, count in found["counts"].items():
        call.screen.line(f"{reason}: {count}")
    call.screen.table(
        ("RECEIVED", "REASON", "STATUS", "FROM", "WHY"),
        [
            (
                when(each["receivedAt"]),
                each["reason"],
                each["status"],
                each["address"] or "",
                each["detail"],
            )
            for each in found["data"]
        ],
        empty="nothing was refused",
    )
    hints = {each["reason"]: each["hint"] for each in found["data"] if each["hint"]}
    for reason, hint in hints.items():
        call.screen.note(f"{reason}: {hint}")
