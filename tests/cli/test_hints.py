import pytest

from tenure.cli.hints import allowing, hinted
from tenure.errors import ValidationFailed


@pytest.mark.parametrize(
    ("url", "network"),
    [
        ("http://127.0.0.1:9000/x", "127.0.0.0/8"),
        ("http://localhost/x", "127.0.0.0/8"),
        ("http://[::1]/x", "::1/128"),
        ("http://10.1.2.3/", "10.1.2.0/24"),
        ("http://[fd00::5]/", "fd00::/64"),
        ("http://inside.example/", "the network it resolves to"),
    ],
)
def test_the_network_to_allow_is_written_out(url: str, network: str):
    assert f"--allow-networks {network}" in allowing(url)
    assert f"TENURE_ALLOW_NETWORKS={network}" in allowing(url)


def test_only_a_refused_address_gets_the_hint():
    other = ValidationFailed.at("body", "url", msg="no host")
    assert hinted(other, "http://10.0.0.1") is other
    refused = ValidationFailed.at(
        "body", "url", msg="private", type="value_error.address_refused"
    )
    told = hinted(refused, "http://10.0.0.1").items[0]
    assert told.msg.startswith("private: start the server with --allow-networks")
    assert told.loc == ("body", "url")
