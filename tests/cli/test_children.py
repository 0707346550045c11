import asyncio
import socket

import pytest

from tenure.cli.children import Children, reserve_port


async def test_a_child_that_refuses_its_settings_ends_them_all_with_its_code():
    notes: list[str] = []
    # `version` knows no such argument: a wrong call, which would be wrong again.
    children = Children(["version"], 2, notes.append)
    async with asyncio.timeout(60):
        assert await children.run() == 2
    assert notes == []
    assert children.pids == ()


def test_a_reserved_port_is_shared_with_children_and_with_nobody_else():
    with reserve_port("127.0.0.1", 0) as kept, socket.socket() as other:
        port: int = kept.getsockname()[1]
        with reserve_port("127.0.0.1", port) as child:
            child.listen()
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
    with reserve_port("127.0.0.1", port):
        pass
