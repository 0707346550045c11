"""Finding out whether a port is free before anything is started on it."""

import errno
import socket

from tenure.errors import ConfigInvalid

__all__ = ["free_port", "is_free"]


def is_free(host: str, port: int) -> bool:
    """Tell whether nobody listens there. Raises ConfigInvalid for a foreign address."""
    try:
        _bind(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        raise _cannot(host, port, error) from None
    return True


def free_port(host: str, port: int) -> int:
    """Return the port, or a free one for 0.

    Processes of one deployment share their port, so the system would let a second
    deployment of the same user share it too, and hand it half of the requests. Raises
    ConfigInvalid when somebody listens there.
    """
    try:
        return _bind(host, port)
    except OSError as error:
        raise _cannot(host, port, error) from None


def _bind(host: str, port: int) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        found: int = probe.getsockname()[1]
        return found


def _cannot(host: str, port: int, error: OSError) -> ConfigInvalid:
    if error.errno == errno.EADDRINUSE:
        return ConfigInvalid(
            f"port {port} of {host} is taken: stop what listens there, or choose another"
            " with --port or TENURE_PORT"
        )
    return ConfigInvalid(
        f"cannot listen on {host} port {port}: {error.strerror or error}; --host and"
        " --port choose where"
    )
