from pathlib import Path

import pytest

from tenure.errors import ServerUnreachable
from tenure.testing.lab.nodes import NodeProcess, free_port


async def test_a_node_that_cannot_start_is_reported_with_what_it_said(tmp_path: Path):
    node = NodeProcess(
        port=free_port(),
        environ={"TENURE_DATABASE_URL": "mysql://x/y"},
        log=tmp_path / "log",
        cwd=tmp_path,
    )
    with pytest.raises(ServerUnreachable, match=r"ended with 2 .*TENURE_DATABASE_URL"):
        await node.start()
    assert not node.ready
