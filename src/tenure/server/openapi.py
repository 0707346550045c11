"""The OpenAPI 3.1 document: FastAPI's routes, the hot route, every status that happens.

A route says with `documented` which body it reads and what it answers; the errors that
any route of its kind can give are added from one table here, so none is forgotten.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from tenure import __version__
from tenure.server import inbound, planned, wire
from tenure.server.problems import json_answer
from tenure.server.schemas import MessageOut, Problem, ValidationProblem

Doc = dict[str, Any]

REF: Final = "#/components/schemas/{model}"
BEARER: Final = "key"
ERRORS: Final[Mapping[int, str]] = {
    400: "The request cannot be understood, or a bound is reached",
    401: "No key, or one that is not valid",
    403: "The key's scope does not reach this",
    404: "Nothing of this id exists for this key",
    405: "Not this method; `Allow` names those that are possible",
    408: "The body came too slowly",
    409: "It exists already, or the Idempotency-Key came with another body",
    410: "The payload was removed",
    413: "The body is too large",
    422: "A field says something that cannot be",
    429: "Too many requests; `Retry-After` says when to come back",
    431: "The headers are too large",
    503: "The database is away, or this node stops; `Retry-After` says when to come back",
}
ANY: Final = (400, 401, 403, 404, 405, 422, 429, 431, 503)
WITH_BODY: Final = (*ANY, 408, 409, 413)
OPEN: Final = (400, 405, 422, 431, 503)
MESSAGES: Final = "/api/v1/app/{app_id}/msg"


def documented(
    answers: Mapping[int, type[BaseModel] | None],
    *,
    body: type[BaseModel] | None = None,
    body_required: bool = True,
    errors: tuple[int, ...] = ANY,
) -> Doc:
    """Return what a route says of itself: its answers, its body, its errors."""
    responses: Doc = {}
    for status, model in answers.items():
        responses[str(status)] = (
            {"description": "Done"} if model is None else {"model": model}
        )
    for status in sorted({*errors, *(WITH_BODY if body is not None else ())}):
        responses[str(status)] = {
            "description": ERRORS[status],
            "model": ValidationProblem if status == 422 else Problem,
        }
    return {
        "responses": responses,
        "status_code": min(answers),
        "response_class": Response,
        "response_model": None,
        "openapi_extra": None
        if body is None
        else {"requestBody": request_body(body, required=body_required)},
    }


def request_body(body: type[BaseModel], *, required: bool = True) -> Doc:
    """Return the requestBody object of a body."""
    ref = REF.format(model=body.__name__)
    return {
        "required": required,
        "content": {"application/json": {"schema": {"$ref": ref}}},
    }


def document(app: FastAPI) -> Doc:
    """Return the whole document."""
    found = get_openapi(
        title="Tenure",
        version=__version__,
        openapi_version="3.1.0",
        description="Side effects that happen: signed webhooks on one SQL database.",
        routes=app.routes,
    )
    schemas = cast("Doc", found["components"]["schemas"])
    schemas |= _input_schemas()
    schemas["MessageIn"] = MESSAGE_IN
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    found["components"]["securitySchemes"] = {
        BEARER: {"type": "http", "scheme": "bearer"}
    }
    paths = cast("dict[str, Doc]", found["paths"])
    paths.setdefault(MESSAGES, {})["post"] = _message_route()
    for path, operations in paths.items():
        for operation in operations.values():
            _finish(path, operation)
    return found


def _finish(path: str, operation: Doc) -> None:
    """Drop what FastAPI adds by itself, and say which routes need a key."""
    answers = cast("Doc", operation["responses"])
    for status, answer in answers.items():
        if status == "204" or "content" not in answer:
            answer.pop("content", None)
    is_open = "/health" in path or path.endswith("/logout")
    operation["security"] = [] if is_open else [{BEARER: []}]


def _input_schemas() -> Doc:
    bodies = [
        inbound.CursorIn,
        inbound.ReplayIn,
        inbound.RotateIn,
        inbound.SourceIn,
        inbound.SourcePatch,
        inbound.TriggerIn,
        planned.BackfillIn,
        planned.JobIn,
        planned.JobPatch,
        planned.PauseIn,
        planned.ReplayRunIn,
        planned.SubmitIn,
        planned.TriggerJobIn,
        wire.ApplicationIn,
        wire.ApplicationPatch,
        wire.EndpointIn,
        wire.EndpointUpdate,
        wire.EndpointPatch,
        wire.EndpointHeadersIn,
        wire.EndpointHeadersPatchIn,
        wire.EndpointSecretRotateIn,
        wire.EventTypeIn,
        wire.EventTypeUpdate,
        wire.EventTypePatch,
        wire.KeyIn,
    ]
    _, whole = models_json_schema(
        [(body, "validation") for body in bodies], ref_template=REF
    )
    return cast("Doc", whole["$defs"])


_TOKENS: Final = {
    "type": "array",
    "items": {"type": "string", "maxLength": 128, "pattern": wire.TOKEN},
}
MESSAGE_IN: Final[Doc] = {
    "type": "object",
    "title": "MessageIn",
    "required": ["eventType", "payload"],
    "properties": {
        "eventType": {"type": "string", "maxLength": 256, "pattern": wire.TOKEN},
        "payload": {
            "type": "object",
            "description": "Stored, signed and sent byte for byte as it stands here.",
        },
        "eventId": {
            "type": ["string", "null"],
            "minLength": 1,
            "maxLength": 256,
            "pattern": wire.TOKEN,
        },
        "channels": {
            "anyOf": [{**_TOKENS, "minItems": 1, "maxItems": 5}, {"type": "null"}]
        },
        "tags": {"anyOf": [_TOKENS, {"type": "null"}]},
        "deliverAt": {"type": ["string", "null"], "format": "date-time"},
        "delaySeconds": {"type": ["number", "null"], "minimum": 0},
        "expiresAt": {"type": ["string", "null"], "format": "date-time"},
        "payloadRetentionPeriod": {
            "type": ["integer", "null"],
            "minimum": 5,
            "maximum": 90,
            "description": "Days.",
        },
        "payloadRetentionHours": {"type": ["integer", "null"], "minimum": 120},
        "application": {
            "anyOf": [
                {"$ref": REF.format(model="ApplicationIn")},
                {"type": "null"},
            ]
        },
        "transformationsParams": {
            "type": ["object", "null"],
            "properties": {
                "rawPayload": {
                    "type": ["string", "null"],
                    "description": "Sent byte for byte instead of `payload`.",
                },
                "headers": {
                    "type": ["object", "null"],
                    "additionalProperties": {"type": "string"},
                },
            },
        },
    },
}


def _message_route() -> Doc:
    def answer(model: type[BaseModel], text: str) -> Doc:
        ref = {"$ref": REF.format(model=model.__name__)}
        return {"description": text, "content": {"application/json": {"schema": ref}}}

    responses = {"202": answer(MessageOut, "Accepted: committed with all its work")}
    for status in sorted({*WITH_BODY}):
        model = ValidationProblem if status == 422 else Problem
        responses[str(status)] = answer(model, ERRORS[status])
    return {
        "tags": ["Message"],
        "summary": "Accept a message",
        "operationId": "v1.message.create",
        "parameters": [
            {
                "name": "app_id",
                "in": "path",
                "required": True,
                "schema": {"type": "string"},
            },
            {
                "name": "with_content",
                "in": "query",
                "required": False,
                "schema": {"type": "boolean", "default": True},
            },
            {
                "name": "idempotency-key",
                "in": "header",
                "required": False,
                "schema": {"type": ["string", "null"]},
            },
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": {"$ref": REF.format(model="MessageIn")}}
            },
        },
        "responses": responses,
    }


def install(app: FastAPI) -> None:
    """Serve the document at /openapi.json, made once."""
    held: list[bytes] = []

    async def show(request: Request) -> Response:
        del request
        if not held:
            held.append(json_answer(document(app)).body)
        return Response(held[0], media_type="application/json")

    app.router.add_route("/openapi.json", show, include_in_schema=False)
