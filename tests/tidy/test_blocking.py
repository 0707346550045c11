from pathlib import Path

import pytest
from blockbuster import BlockingError

from tenure.config import load


async def test_a_blocking_call_of_ours_on_the_loop_is_caught(tmp_path: Path):
    file = tmp_path / "tenure.toml"
    file.write_text("port = 1\n", encoding="utf-8")
    with pytest.raises(BlockingError):
        load(environ={}, file=file)


def test_off_the_loop_the_same_call_is_free_to_block(tmp_path: Path):
    file = tmp_path / "tenure.toml"
    file.write_text("port = 1\n", encoding="utf-8")
    assert load(environ={}, file=file).port == 1
