import socket

import pytest

from tenure.cli.ports import free_port, is_free
from tenure.errors import ConfigInvalid


def test_a_port_that_somebody_shares_is_taken_all_the_same():
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port: int = listener.getsockname()[1]
        assert not is_free("127.0.0.1", port)
        with pytest.raises(ConfigInvalid, match=f"port {port} of 127.0.0.1 is taken"):
            free_port("127.0.0.1", port)
    assert free_port("127.0.0.1", port) == port


def test_an_address_that_is_not_ours_is_refused():
    with pytest.raises(ConfigInvalid, match=r"cannot listen on 192\.0\.2\.1"):
        is_free("192.0.2.1", 8071)
    with pytest.raises(ConfigInvalid, match=r"cannot listen on 192\.0\.2\.1"):
        free_port("192.0.2.1", 8071)


def test_port_zero_finds_one():
    assert free_port("127.0.0.1", 0) > 0
