"""What to change when an address is refused: the setting, written out."""

from ipaddress import ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

from tenure.errors import ValidationFailed, ValidationItem

__all__ = ["ADDRESS_REFUSED", "allowing", "hinted"]

ADDRESS_REFUSED: Final = "address_refused"
_LOOPBACK: Final = "127.0.0.0/8"


def allowing(url: str) -> str:
    """Return the sentence that says how to let the server reach this URL's host."""
    network = _network(urlsplit(url).hostname or "")
    return (
        f"start the server with --allow-networks {network}"
        f" or TENURE_ALLOW_NETWORKS={network}"
    )


def _network(host: str) -> str:
    try:
        address = ip_address(host)
    except ValueError:
        return _LOOPBACK if host == "localhost" else "the network it resolves to"
    if address.is_loopback:
        return _LOOPBACK if address.version == 4 else "::1/128"
    return str(ip_network(f"{host}/{24 if address.version == 4 else 64}", strict=False))


def hinted(error: ValidationFailed, url: str) -> ValidationFailed:
    """Return the refusal, with the setting that allows the address if that is why."""
    if not any(item.type.endswith(ADDRESS_REFUSED) for item in error.items):
        return error
    return ValidationFailed(
        [
            ValidationItem(
                loc=item.loc, msg=f"{item.msg}: {allowing(url)}", type=item.type
            )
            if item.type.endswith(ADDRESS_REFUSED)
            else item
            for item in error.items
        ]
    )
