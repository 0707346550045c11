from tenure.store.backend import Backend


async def test_smoke(backend: Backend) -> None:
    assert await backend.write(lambda tx: tx.scalar("SELECT 1")) == 1
    assert await backend.read(lambda tx: tx.scalar("SELECT count(*) FROM work")) == 0
    assert await backend.write(lambda tx: tx.now) > 10**15
