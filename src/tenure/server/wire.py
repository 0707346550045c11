"""Request bodies of the control plane: what callers send, read into the slice's values.

Types are strict (`"5"` is no number), unknown members are ignored, null means absent in
a create or a PUT. The checks of single fields are `tenure.outbox.fields`; here they get
their place in the body, and the OpenAPI document its schemas. Former names that old
clients still send are read as the new ones.
"""

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel

from tenure import limits
from tenure.clock import from_rfc3339
from tenure.outbox import fields, model
from tenure.outbox.model import UNSET

M = TypeVar("M", bound=BaseModel)

TOKEN: Final = r"^[a-zA-Z0-9\-_.]+$"  # noqa: S105 -- a grammar, not a secret


class In(BaseModel):
    """A request body."""

    model_config = ConfigDict(
        alias_generator=to_camel, strict=True, extra="ignore", frozen=True
    )


def _uid(prefix: str) -> AfterValidator:
    return AfterValidator(lambda value: fields.check_uid(value, prefix=prefix))


def _tuple(check: Callable[[list[str]], tuple[str, ...]]) -> AfterValidator:
    return AfterValidator(check)


def _schema(**schema: Any) -> WithJsonSchema:
    return WithJsonSchema(schema)


def _event_types(values: list[str]) -> tuple[str, ...]:
    if not values:
        raise ValueError("give at least 1 event type, or null for all")
    return tuple(sorted({fields.check_event_type(value) for value in values}))


def _flags(values: list[str]) -> tuple[str, ...]:
    return tuple(sorted({fields.check_event_type(value) for value in values}))


def _default(value: object) -> Callable[[object], object]:
    return lambda given: value if given is None else given


_UID_SCHEMA: Final = {
    "type": "string",
    "minLength": 1,
    "maxLength": limits.UID_MAX,
    "pattern": TOKEN,
}


def _set_schema(most: int | None) -> WithJsonSchema:
    schema: dict[str, Any] = {
        "type": "array",
        "items": {"type": "string", "maxLength": limits.NAME_MAX, "pattern": TOKEN},
        "minItems": 1,
    }
    return WithJsonSchema(schema | ({} if most is None else {"maxItems": most}))


AppUid = Annotated[str, _uid("app"), WithJsonSchema(_UID_SCHEMA)]
EndpointUid = Annotated[str, _uid("ep"), WithJsonSchema(_UID_SCHEMA)]
Name = Annotated[
    str, AfterValidator(fields.check_name), _schema(type="string", minLength=1)
]
Description = Annotated[str, AfterValidator(fields.check_description)]
Rate = Annotated[
    int,
    AfterValidator(fields.check_throttle_rate),
    _schema(type="integer", minimum=1, maximum=limits.THROTTLE_RATE_MAX),
]
Metadata = Annotated[dict[str, str], AfterValidator(fields.check_metadata)]
EventTypeName = Annotated[
    str,
    AfterValidator(fields.check_event_type),
    _schema(type="string", maxLength=limits.NAME_MAX, pattern=TOKEN),
]
EventTypes = Annotated[list[str], _tuple(_event_types), _set_schema(None)]
EndpointChannels = Annotated[
    list[str],
    _tuple(fields.check_endpoint_channels),
    _set_schema(limits.CHANNELS_PER_ENDPOINT_MAX),
]
Schemas = Annotated[dict[str, Any], AfterValidator(fields.check_schemas)]
Flags = Annotated[list[str], _tuple(_flags)]
Flag = Annotated[bool, BeforeValidator(_default(value=False))]
Url = Annotated[str, Field(min_length=1, max_length=limits.URL_MAX)]


def _instant(value: object) -> int:
    if not isinstance(value, str):
        raise ValueError(  # noqa: TRY004 -- ValueError is what pydantic reads
            "write an instant as RFC 3339 text with its offset"
        )
    return from_rfc3339(value)


Instant = Annotated[
    int, BeforeValidator(_instant), _schema(type="string", format="date-time")
]


def _renamed(data: Any, old: str, new: str, *, both: bool) -> Any:
    if not isinstance(data, dict) or old not in data:
        return cast("object", data)
    given = cast("dict[str, Any]", data)
    if new in given and not both:
        raise ValueError(f"give either `{new}` or its former name `{old}`, not both")
    rest = {name: value for name, value in given.items() if name != old}
    return {new: given[old]} | rest


def unset_or(body: In, *names: str) -> dict[str, Any]:
    """Return the named members that were sent, UNSET for the rest."""
    sent = body.model_fields_set
    return {name: getattr(body, name) if name in sent else UNSET for name in names}


class _Rated(In):
    @model_validator(mode="before")
    @classmethod
    def _rate_limit(cls, data: Any) -> Any:
        return _renamed(data, "rateLimit", "throttleRate", both=True)


Days = Annotated[int, Field(ge=1, le=limits.HISTORY_DAYS_MAX)]


class KeptIn(In):
    """For how many days an application keeps what is over."""

    history_days: Days | None = None
    payload_days: Days | None = None
    response_days: Days | None = None

    def value(self) -> model.Kept:
        """Return it as the outbox takes it."""
        return model.Kept(
            history_days=self.history_days,
            payload_days=self.payload_days,
            response_days=self.response_days,
        )


class ApplicationIn(_Rated):
    """An application to create or to put in place."""

    name: Name
    throttle_rate: Rate | None = None
    uid: AppUid | None = None
    metadata: Annotated[
        Metadata, BeforeValidator(lambda value: {} if value is None else value)
    ] = Field(default_factory=dict)
    tenure: KeptIn | None = None

    def value(self) -> model.ApplicationIn:
        """Return it as the outbox takes it."""
        return model.ApplicationIn(
            name=self.name,
            uid=self.uid,
            throttle_rate=self.throttle_rate,
            metadata=self.metadata,
            kept=None if self.tenure is None else self.tenure.value(),
        )


class ApplicationPatch(_Rated):
    """A partial change of an application."""

    name: Name = ""
    throttle_rate: Rate | None = None
    uid: AppUid | None = None
    metadata: Metadata | None = None
    tenure: KeptIn | None = None

    def value(self) -> model.ApplicationPatch:
        """Return it as the outbox takes it."""
        return model.ApplicationPatch(
            **unset_or(self, "name", "throttle_rate", "uid", "metadata"),
            kept=UNSET if self.tenure is None else self.tenure.value(),
        )


class SettingsIn(In):
    """What Tenure offers for an endpoint beyond the Svix API."""

    timeout_seconds: (
        Annotated[
            float,
            Field(
                ge=limits.REQUEST_MIN_SECONDS,
                le=limits.REQUEST_MAX_SECONDS,
                allow_inf_nan=False,
                strict=False,
            ),
        ]
        | None
    ) = None
    method: Literal["POST", "PUT", "PATCH", "DELETE", "same"] = "POST"
    retry_seconds: (
        Annotated[
            list[Annotated[float, Field(ge=0, le=limits.RETRY_AFTER_MAX_SECONDS)]],
            Field(min_length=1, max_length=limits.RETRY_STEPS_MAX),
        ]
        | None
    ) = None
    retry_statuses: Annotated[
        list[Annotated[int, Field(ge=300, le=499)]], Field(max_length=200)
    ] = Field(default_factory=list)
    insecure: bool = False
    allow_networks: Annotated[list[str], Field(max_length=50)] = Field(
        default_factory=list
    )
    at_most_once: bool = False
    svix_headers: bool = False
    kind: Annotated[str, Field(min_length=1, max_length=200)] = "http"
    filter: Annotated[str, Field(max_length=limits.EXPRESSION_BYTES)] | None = None
    transform: Annotated[str, Field(max_length=limits.EXPRESSION_BYTES)] | None = None
    drop_headers: (
        Annotated[
            list[Annotated[str, Field(max_length=200)]],
            Field(max_length=limits.DROP_HEADERS_MAX),
        ]
        | None
    ) = None
    relay_query: bool = False
    archive_days: Annotated[int, Field(ge=1, le=limits.HISTORY_DAYS_MAX)] | None = None

    def value(self) -> model.EndpointSettings:
        """Return it as the outbox takes it."""
        return model.EndpointSettings(
            timeout_seconds=self.timeout_seconds,
            method=self.method,
            retry_seconds=None
            if self.retry_seconds is None
            else tuple(self.retry_seconds),
            retry_statuses=tuple(self.retry_statuses),
            insecure=self.insecure,
            allow_networks=tuple(self.allow_networks),
            at_most_once=self.at_most_once,
            svix_headers=self.svix_headers,
            kind=self.kind,
            filter=self.filter,
            transform=self.transform,
            drop_headers=None
            if self.drop_headers is None
            else tuple(self.drop_headers),
            relay_query=self.relay_query,
            archive_days=self.archive_days,
        )


class _Endpoint(_Rated):
    @model_validator(mode="before")
    @classmethod
    def _filter_types(cls, data: Any) -> Any:
        return _renamed(data, "filterTypes", "eventTypes", both=False)


class EndpointUpdate(_Endpoint):
    """An endpoint to put in place; its secret and headers stay."""

    url: Url
    description: Annotated[Description, BeforeValidator(_default(""))] = ""
    throttle_rate: Rate | None = None
    uid: EndpointUid | None = None
    disabled: Flag = False
    event_types: EventTypes | None = None
    channels: EndpointChannels | None = None
    metadata: Annotated[
        Metadata, BeforeValidator(lambda value: {} if value is None else value)
    ] = Field(default_factory=dict)
    version: Annotated[int, Field(ge=1, le=65535)] | None = None
    tenure: SettingsIn | None = None

    def value(self) -> model.EndpointIn:
        """Return it as the outbox takes it."""
        return model.EndpointIn(**self.members())

    def members(self) -> dict[str, Any]:
        """Return what both a create and a PUT say."""
        return {
            "url": self.url,
            "description": self.description,
            "throttle_rate": self.throttle_rate,
            "uid": self.uid,
            "disabled": self.disabled,
            "event_types": self.event_types,
            "channels": self.channels,
            "metadata": self.metadata,
            "svix_version": self.version or 1,
            "settings": None if self.tenure is None else self.tenure.value(),
        }


class EndpointIn(EndpointUpdate):
    """An endpoint to create."""

    secret: Annotated[str, Field(max_length=1024)] | None = None
    headers: dict[str, str] | None = None

    def members(self) -> dict[str, Any]:
        """Return what a create says."""
        given = super().members()
        return given | {"secret": self.secret, "headers": self.headers}


class EndpointPatch(_Endpoint):
    """A partial change of an endpoint."""

    url: Url = ""
    description: Description = ""
    throttle_rate: Rate | None = None
    uid: EndpointUid | None = None
    disabled: bool = False
    event_types: EventTypes | None = None
    channels: EndpointChannels | None = None
    metadata: Metadata | None = None
    version: Annotated[int, Field(ge=1, le=65535)] = 1
    tenure: SettingsIn | None = None

    def value(self) -> model.EndpointPatch:
        """Return it as the outbox takes it."""
        given = unset_or(
            self,
            "url",
            "description",
            "throttle_rate",
            "uid",
            "disabled",
            "event_types",
            "channels",
            "metadata",
        )
        sent = self.model_fields_set
        return model.EndpointPatch(
            svix_version=self.version if "version" in sent else UNSET,
            settings=UNSET if self.tenure is None else self.tenure.value(),
            **given,
        )


class EndpointHeadersIn(In):
    """Every custom header of an endpoint."""

    headers: dict[str, str]


class EndpointHeadersPatchIn(In):
    """Custom headers to set, and (null, or named in `deleteHeaders`) to remove."""

    headers: dict[str, str | None] = Field(default_factory=dict)
    delete_headers: list[str] = Field(default_factory=list)


class EndpointSecretRotateIn(In):
    """A new signing secret; null makes one."""

    key: Annotated[str, Field(max_length=1024)] | None = None
    grace_period_seconds: (
        Annotated[int, Field(ge=0, le=limits.SECRET_GRACE_MAX_SECONDS)] | None
    ) = None

    def value(self) -> model.SecretRotation:
        """Return it as the outbox takes it."""
        if self.grace_period_seconds is None:
            return model.SecretRotation(key=self.key)
        return model.SecretRotation(
            key=self.key, grace_seconds=self.grace_period_seconds
        )


class EventTypeSettingsIn(In):
    """What Tenure offers for an event type beyond the Svix API."""

    schema_check: Literal["off", "warn", "enforce"] = "off"

    def value(self) -> model.SchemaCheck:
        """Return it as the outbox takes it."""
        return model.SchemaCheck(self.schema_check)


class _Flagged(In):
    @model_validator(mode="before")
    @classmethod
    def _feature_flag(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "featureFlag" not in data:
            return cast("object", data)
        given = cast("dict[str, Any]", data)
        flag = given["featureFlag"]
        return {"featureFlags": None if flag is None else [flag]} | given


class EventTypeUpdate(_Flagged):
    """An event type to put in place under the name of the path."""

    description: Description
    archived: Flag = False
    deprecated: Flag = False
    schemas: Schemas | None = None
    feature_flags: Flags | None = None
    group_name: EventTypeName | None = None
    tenure: EventTypeSettingsIn | None = None

    def named(self, name: str) -> model.EventTypeIn:
        """Return it as the outbox takes it."""
        return model.EventTypeIn(
            name=name,
            description=self.description,
            archived=self.archived,
            deprecated=self.deprecated,
            schemas=self.schemas,
            feature_flags=self.feature_flags,
            group_name=self.group_name,
            schema_check=None if self.tenure is None else self.tenure.value(),
        )


class EventTypeIn(EventTypeUpdate):
    """An event type to create."""

    name: EventTypeName

    def value(self) -> model.EventTypeIn:
        """Return it as the outbox takes it."""
        return self.named(self.name)


class EventTypePatch(_Flagged):
    """A partial change of an event type."""

    description: Description = ""
    archived: bool = False
    deprecated: bool = False
    schemas: Schemas | None = None
    feature_flags: Flags | None = None
    group_name: EventTypeName | None = None
    tenure: EventTypeSettingsIn | None = None

    def value(self) -> model.EventTypePatch:
        """Return it as the outbox takes it."""
        return model.EventTypePatch(
            schema_check=UNSET if self.tenure is None else self.tenure.value(),
            **unset_or(
                self,
                "description",
                "archived",
                "deprecated",
                "schemas",
                "feature_flags",
                "group_name",
            ),
        )


class KeyIn(In):
    """An API key to make."""

    name: Name
    scope: Literal["read", "write", "admin"] = "write"
    app_id: Annotated[str, Field(max_length=limits.UID_MAX)] | None = None
    expires_at: Instant | None = None
