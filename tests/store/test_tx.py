from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import pytest
import pytest_asyncio
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, IntegrityError

from tenure.clock import SettableClock, SystemClock
from tenure.errors import InvariantViolated
from tenure.store.tx import Tx

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenure.store.contract import Backend
    from tenure.store.tx import ColumnType
    from tests.databases import MakeBackend

scratch = sa.Table(
    "scratch",
    sa.MetaData(),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("big", sa.BigInteger),
    sa.Column("middle", sa.Integer),
    sa.Column("small", sa.SmallInteger),
    sa.Column("flag", sa.Boolean),
    sa.Column("body", sa.LargeBinary),
    sa.Column("share", sa.Float),
    sa.Column("order", sa.Text, server_default=sa.text("'given'")),
)
WHOLE = {
    "id": "a",
    "big": 2**63 - 1,
    "middle": -(2**31),
    "small": 32767,
    "flag": True,
    "body": b"\x00\xff'\\",
    "share": 0.1,
    "order": "o'clock \"\\ ☕",
}
EMPTY = dict.fromkeys(WHOLE) | {"id": "b"}


@pytest_asyncio.fixture
async def scratched(backend: Backend) -> Backend:
    await backend.write(lambda tx: scratch.metadata.create_all(tx.conn))
    return backend


def put(tx: Tx, *ids: str) -> int:
    return tx.insert(scratch, [{"id": each} for each in ids])


async def ids(backend: Backend) -> list[str]:
    query = "SELECT id FROM scratch ORDER BY id"
    return await backend.read(lambda tx: [row.id for row in tx.all(query)])


async def test_insert_carries_every_column_type_and_null(scratched: Backend) -> None:
    written = await scratched.write(lambda tx: tx.insert(scratch, [WHOLE, EMPTY]))
    rows = await scratched.read(lambda tx: tx.all(sa.select(scratch).order_by("id")))
    assert written == 2
    assert [dict(row._mapping) for row in rows] == [WHOLE, EMPTY]


async def test_columns_not_named_take_the_default(scratched: Backend) -> None:
    await scratched.write(lambda tx: put(tx, "a"))
    query = sa.select(scratch.c.order)
    assert await scratched.read(lambda tx: tx.scalar(query)) == "given"


async def test_inserting_nothing_asks_nothing(scratched: Backend) -> None:
    assert await scratched.write(lambda tx: tx.insert(scratch, [])) == 0


async def test_rows_of_different_columns_are_refused(scratched: Backend) -> None:
    for odd in ({"id": "b"}, {"id": "b", "small": 1}, {"id": "b", "big": 1, "flag": 0}):
        rows: list[dict[str, Any]] = [{"id": "a", "big": 1}, odd]
        with pytest.raises(KeyError):
            await scratched.write(lambda tx, rows=rows: tx.insert(scratch, rows))
    assert await ids(scratched) == []


async def test_a_conflict_fails_the_whole_insert(scratched: Backend) -> None:
    await scratched.write(lambda tx: put(tx, "b"))
    with pytest.raises(IntegrityError):
        await scratched.write(lambda tx: put(tx, "a", "b", "c"))
    assert await ids(scratched) == ["b"]


async def test_conflict_nothing_counts_only_what_went_in(scratched: Backend) -> None:
    await scratched.write(lambda tx: put(tx, "b"))
    rows = [{"id": each} for each in "abcc"]
    written = await scratched.write(
        lambda tx: tx.insert(scratch, rows, on_conflict="nothing")
    )
    assert written == 2
    assert await ids(scratched) == ["a", "b", "c"]


async def test_run_says_how_many_rows_it_touched(scratched: Backend) -> None:
    await scratched.write(lambda tx: put(tx, "a", "b", "c"))
    update = "UPDATE scratch SET big = :big WHERE id <= :id"
    touched = await scratched.write(lambda tx: tx.run(update, {"big": 7, "id": "b"}))
    none = await scratched.write(lambda tx: tx.run(update, {"big": 7, "id": ""}))
    core = await scratched.write(lambda tx: tx.run(sa.delete(scratch)))
    assert (touched, none, core) == (2, 0, 3)


async def test_first_and_scalar_of_nothing_are_none(scratched: Backend) -> None:
    query = "SELECT id FROM scratch"
    answers = await scratched.read(lambda tx: (tx.first(query), tx.scalar(query)))
    assert answers == (None, None)


async def test_rows_can_be_joined_and_keep_their_types(scratched: Backend) -> None:
    await scratched.write(lambda tx: put(tx, "a", "b", "c"))
    columns: Mapping[str, ColumnType] = {"id": "text", "n": "bigint", "f": "bool"}
    records = [("a", 2**63 - 1, True), ("c", None, False), ("z", 0, None)]

    def look(tx: Tx) -> Sequence[Any]:
        fragment, params = tx.rows("given", columns, records)
        query = (
            f"SELECT s.id, given.n, given.f FROM scratch AS s JOIN {fragment}"
            " ON s.id = given.id ORDER BY s.id"
        )
        return tx.all(query, params)

    assert [tuple(row) for row in await scratched.read(look)] == [
        ("a", 2**63 - 1, True),
        ("c", None, False),
    ]


async def test_two_rows_fragments_fit_one_statement(scratched: Backend) -> None:
    def look(tx: Tx) -> int:
        one, params_one = tx.rows("one", {"x": "bigint"}, [(1,), (2,)])
        two, params_two = tx.rows("two", {"x": "bigint"}, [(10,), (20,)])
        query = f"SELECT sum(one.x * two.x) FROM {one}, {two}"
        return int(tx.scalar(query, params_one | params_two))

    assert await scratched.read(look) == 90


async def test_no_records_are_no_rows(backend: Backend) -> None:
    def look(tx: Tx) -> int:
        fragment, params = tx.rows("given", {"x": "text"}, [])
        return tx.scalar(f"SELECT count(*) FROM {fragment}", params)

    assert await backend.read(look) == 0


async def test_bytes_in_rows_are_refused_by_name(backend: Backend) -> None:
    def look(tx: Tx) -> object:
        columns = cast("Any", {"x": "bytes"})
        fragment, params = tx.rows("given", columns, [(b"\x00\xff",)])
        return tx.scalar(f"SELECT x FROM {fragment}", params)

    with pytest.raises(InvariantViolated, match=r"\['x'\]"):
        await backend.read(look)


async def test_a_savepoint_undoes_what_failed_inside_it(scratched: Backend) -> None:
    def work(tx: Tx) -> None:
        put(tx, "a")
        with suppress(IntegrityError), tx.savepoint():
            put(tx, "b")
            put(tx, "a")
        with tx.savepoint():
            put(tx, "c")

    await scratched.write(work)
    assert await ids(scratched) == ["a", "c"]


async def test_savepoints_nest(scratched: Backend) -> None:
    def work(tx: Tx) -> None:
        with tx.savepoint():
            put(tx, "a")
            with suppress(LookupError), tx.savepoint():
                put(tx, "b")
                raise LookupError
        put(tx, "c")

    await scratched.write(work)
    assert await ids(scratched) == ["a", "c"]


async def test_a_failure_hidden_without_a_savepoint_commits_nothing(
    scratched: Backend,
) -> None:
    def work(tx: Tx) -> None:
        put(tx, "a")
        with pytest.raises(IntegrityError):
            put(tx, "a")

    with pytest.raises(InvariantViolated, match="savepoint"):
        await scratched.write(work)
    assert await ids(scratched) == []


async def test_now_is_read_once_per_transaction(backend: Backend) -> None:
    first, again = await backend.write(lambda tx: (tx.now, tx.now))
    read_first, read_again = await backend.read(lambda tx: (tx.now, tx.now))
    assert first == again
    assert read_first == read_again


async def test_now_is_near_the_wall_and_never_goes_back(backend: Backend) -> None:
    before = SystemClock().wall_us()
    seen = [await backend.write(lambda tx: tx.now) for _ in range(20)]
    seen += [await backend.read(lambda tx: tx.now) for _ in range(20)]
    after = SystemClock().wall_us()
    assert seen == sorted(seen)
    # The server reads the same clock; it and we round it apart.
    assert before - 10 <= seen[0]
    assert seen[-1] <= after + 10


async def test_the_offset_moves_a_backends_time_alone(
    make_backend: MakeBackend,
) -> None:
    here, ahead = (
        await make_backend(),
        await make_backend(clock_offset_us=3_600 * 10**6),
    )
    base = await here.write(lambda tx: tx.now)
    moved = await ahead.write(lambda tx: tx.now)
    assert 3_600 * 10**6 <= moved - base < 3_700 * 10**6
    ahead.clock_offset_us = 0
    assert await ahead.read(lambda tx: tx.now) < await here.read(lambda tx: tx.now) + 1


async def test_a_callers_connection_keeps_its_transaction(
    scratched: Backend,
) -> None:
    def caller(outer: Tx) -> tuple[int, str]:
        tx = Tx.within(outer.conn, clock=SettableClock(), clock_offset_us=5)
        put(tx, "a")
        assert tx.now == tx.now
        raise Undone(tx.now, tx.dialect)

    with pytest.raises(Undone) as undone:
        await scratched.write(caller)
    now, dialect = undone.value.args
    assert dialect == scratched.dialect
    if dialect == "sqlite":
        assert now == SettableClock().wall_us() + 5
    else:
        assert abs(now - SystemClock().wall_us()) < 60 * 10**6
    assert await ids(scratched) == []


async def test_a_callers_planner_settings_are_left_alone(
    postgres_backend: Backend,
) -> None:
    def caller(outer: Tx) -> object:
        tx = Tx.within(outer.conn, clock=SystemClock())
        assert tx.now
        return tx.scalar("SELECT current_setting('enable_seqscan')")

    assert await postgres_backend.read(caller) == "on"


async def test_a_connection_to_something_else_is_refused() -> None:
    engine = sa.create_mock_engine("mysql+pymysql://", lambda *_: None)
    with pytest.raises(InvariantViolated, match="mysql"):
        Tx.within(engine, clock=SystemClock())  # pyright: ignore[reportArgumentType]


async def test_a_column_type_that_no_array_carries_is_refused(
    postgres_backend: Backend,
) -> None:
    odd = sa.Table("odd", sa.MetaData(), sa.Column("at", sa.DateTime))
    with pytest.raises(InvariantViolated, match=r"odd\.at"):
        await postgres_backend.write(lambda tx: tx.insert(odd, [{"at": None}]))


async def test_a_wrong_statement_is_the_callers_error(backend: Backend) -> None:
    with pytest.raises(DBAPIError):
        await backend.write(lambda tx: tx.scalar("SELECT nothing_of_this_name"))
    with pytest.raises(DBAPIError):
        await backend.read(lambda tx: tx.scalar("SELECT nothing_of_this_name"))
    assert await backend.write(lambda tx: tx.scalar("SELECT 1")) == 1


class Undone(Exception):
    pass
