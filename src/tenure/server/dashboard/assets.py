"""The page's templates and files, read once at import and never on the event loop."""

from importlib.resources import files
from typing import Final

from jinja2 import DictLoader, Environment, StrictUndefined

TEMPLATE_NAMES: Final = (
    "base.html",
    "job.html",
    "jobs.html",
    "key.html",
    "message.html",
    "overview.html",
    "parts.html",
    "problem.html",
    "receipt.html",
    "run.html",
    "source.html",
    "sources.html",
)
MEDIA_TYPES: Final = {
    "icon.svg": "image/svg+xml",
    "style.css": "text/css; charset=utf-8",
}

_HERE: Final = files("tenure.server")
TEMPLATES: Final = {
    name: _HERE.joinpath("templates", name).read_text(encoding="utf-8")
    for name in TEMPLATE_NAMES
}
STATIC: Final = {
    name: _HERE.joinpath("static", name).read_bytes() for name in MEDIA_TYPES
}


def environment() -> Environment:
    """Return the templates' environment: everything is escaped, nothing undefined."""
    return Environment(
        loader=DictLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
