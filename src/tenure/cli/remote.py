"""The API of a running server, by HTTP with an API key."""

import http.client
import ssl
from typing import Final
from urllib.parse import urlsplit

from tenure import __version__
from tenure.cli.access import Answered
from tenure.errors import ConfigInvalid, ServerUnreachable
from tenure.limits import CLIENT_SECONDS

__all__ = ["Remote"]


class Remote:
    """One server; each request has a connection of its own."""

    def __init__(self, server: str, key: str) -> None:
        parts = urlsplit(server.rstrip("/"))
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigInvalid(
                f"--server is {server!r}: give an address such as http://127.0.0.1:8071"
            )
        self._server: Final = server.rstrip("/")
        self._tls: Final = parts.scheme == "https"
        self._host: Final = parts.hostname
        try:
            self._port: Final = parts.port
        except ValueError as error:
            raise ConfigInvalid(f"--server is {server!r}: {error}") from None
        self._path: Final = parts.path
        self._headers: Final = {
            "authorization": f"Bearer {key}",
            "content-type": "application/json",
            "accept": "application/json",
            "user-agent": f"tenure-cli/{__version__}",
        }

    @property
    def where(self) -> str:
        """The address of the server."""
        return f"the server at {self._server}"

    def send(self, method: str, target: str, body: bytes | None) -> Answered:
        """Return the answer. Raises ServerUnreachable when there is none."""
        connection = self._connection()
        try:
            connection.request(method, self._path + target, body, self._headers)
            response = connection.getresponse()
            return Answered(status=response.status, body=response.read())
        except (OSError, http.client.HTTPException) as error:
            raise ServerUnreachable(
                f"no answer from {self._server} ({_why(error)}): start it with `tenure"
                " serve`, or name another with --server or TENURE_SERVER"
            ) from None
        except ValueError:
            # http.client refuses a header value that is no header value.
            raise ConfigInvalid(
                "the API key holds characters that no key has: copy it again"
            ) from None
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls:
            return http.client.HTTPSConnection(
                self._host,
                self._port,
                timeout=CLIENT_SECONDS,
                context=ssl.create_default_context(),
            )
        return http.client.HTTPConnection(
            self._host, self._port, timeout=CLIENT_SECONDS
        )


def _why(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(error, TimeoutError):
        return f"nothing came within {CLIENT_SECONDS:g} s"
    return str(error) or type(error).__name__
