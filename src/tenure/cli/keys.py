"""`tenure keys` (who may call the API) and `tenure key` (what seals stored secrets)."""

from typing import Annotated

import typer

from tenure.cli import options
from tenure.cli.screen import when
from tenure.cli.verbs import Call, verb

keys = typer.Typer(
    help="API keys: who may call, and what they may.", no_args_is_help=True
)
key = typer.Typer(help="The key ring that seals stored secrets.", no_args_is_help=True)

ROOT = "/api/v1/key"


@verb(keys, "list")
def list_keys(call: Call, limit: options.Limit = 100) -> None:
    """List the API keys; never a token."""
    found = list(call.api().pages(ROOT, limit))
    if call.screen.as_json:
        call.screen.json(found)
        return
    call.screen.table(
        ("KEY", "NAME", "SCOPE", "APPLICATION", "CREATED", "EXPIRES", "REVOKED"),
        [
            (
                item["id"],
                item["name"],
                item["scope"],
                item["appId"] or "all",
                when(item["createdAt"]),
                when(item["expiresAt"]),
                when(item["revokedAt"]),
            )
            for item in found
        ],
        empty="no keys: `tenure keys create NAME` makes one",
    )


@verb(keys, "create")
def create(
    call: Call,
    name: Annotated[str, typer.Argument(help="What it is for.")],
    scope: Annotated[
        str,
        typer.Option(
            metavar="read|write|admin",
            help="What it may; each includes the ones before.",
        ),
    ] = "admin",
    app: Annotated[
        str | None,
        typer.Option("--app", help="Limit it to one application (read or write)."),
    ] = None,
) -> None:
    """Make an API key; its token is printed this once and stored nowhere."""
    body = {"name": name, "scope": scope, "appId": app}
    made = call.api().post(ROOT, body)
    if call.screen.as_json:
        call.screen.json(made)
        return
    call.screen.line(made["token"])
    call.screen.note(f"{made['id']} ({made['scope']}); this is shown once, keep it")


@verb(keys, "revoke")
def revoke(
    call: Call, ref: Annotated[str, typer.Argument(metavar="KEY", help="key_…")]
) -> None:
    """Revoke an API key, within seconds on every node."""
    call.api().delete(f"{ROOT}/{ref}")
    if call.screen.as_json:
        call.screen.json({"revoked": ref})
    else:
        call.screen.line(f"{ref} is revoked")


@verb(key, "new", asks=False)
def new(call: Call) -> None:
    """Print a fresh key for the key ring (TENURE_SECRET_KEYS)."""
    from tenure.outbox.keyring import new_key

    made = new_key()
    if call.screen.as_json:
        call.screen.json({"key": made})
        return
    call.screen.line(made)
    call.screen.note(
        "put it in front of TENURE_SECRET_KEYS and keep the old keys behind it: without"
        " them what they sealed cannot be read"
    )
