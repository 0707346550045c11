"""A shop whose order and whose message about it are one commit.

    tenure serve                              (sends; any number, on any machine)
    uvicorn examples.orders_app:app           (this: it only submits)

Both use one database: SHOP_DATABASE_URL here, TENURE_DATABASE_URL there. No node runs in
this process, and it needs no key ring. The same order is placed by a synchronous session
and by an asynchronous one; an application has one of the two.
"""

import os
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Final

from fastapi import Depends, FastAPI, HTTPException
from sqlalchemy import create_engine, make_url
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import tenure

URL: Final = make_url(os.environ.get("SHOP_DATABASE_URL", "sqlite:///tenure.db"))
SYNC, ASYNC = {
    "sqlite": ("sqlite+pysqlite", "sqlite+aiosqlite"),
    "postgresql": ("postgresql+psycopg", "postgresql+asyncpg"),
}[URL.get_backend_name()]
engine = create_engine(URL.set(drivername=SYNC))
async_engine = create_async_engine(URL.set(drivername=ASYNC))


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "shop_order"

    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    customer: Mapped[str]
    cents: Mapped[int]


Base.metadata.create_all(engine)
app = FastAPI()


def session() -> Iterator[Session]:
    with Session(engine) as opened:
        yield opened


async def async_session() -> AsyncIterator[AsyncSession]:
    async with AsyncSession(async_engine) as opened:
        yield opened


@app.post("/orders/{number}")
def place(
    number: int, customer: str, cents: int, mine: Annotated[Session, Depends(session)]
) -> dict[str, str]:
    """Either the order is there and its customer hears of it, or neither."""
    accepted = tenure.submit(
        mine,
        customer,
        "order.placed",
        {"order": number, "cents": cents},
        idempotency_key=f"order-{number}",
    )
    mine.add(Order(number=number, customer=customer, cents=cents))
    try:
        mine.commit()
    except IntegrityError:  # the number was taken: the message goes with the order
        raise HTTPException(409, f"order {number} exists") from None
    return {"message": accepted.message.id}


@app.post("/async/orders/{number}")
async def place_async(
    number: int,
    customer: str,
    cents: int,
    mine: Annotated[AsyncSession, Depends(async_session)],
) -> dict[str, str]:
    """The same, by an AsyncSession."""
    accepted = await tenure.submit_async(
        mine,
        customer,
        "order.placed",
        {"order": number, "cents": cents},
        idempotency_key=f"order-{number}",
    )
    mine.add(Order(number=number, customer=customer, cents=cents))
    try:
        await mine.commit()
    except IntegrityError:
        raise HTTPException(409, f"order {number} exists") from None
    return {"message": accepted.message.id}
