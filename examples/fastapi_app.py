"""A shop that tells its customers by webhook, with Tenure inside of its own process.

    uvicorn examples.fastapi_app:app          (or any other ASGI server)

The shop's routes are its own; below `/tenure` are Tenure's API and pages. The engine
lives in the shop's lifespan: it stops by draining.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from fastapi import FastAPI

from tenure.config import load
from tenure.engine import Engine
from tenure.outbox.model import ApplicationIn, EndpointIn, NewMessage
from tenure.outbox.outbox import DEFAULT_TENANT
from tenure.server.app import asgi

engine = Engine(load())  # TENURE_* variables and tenure.toml


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with engine:
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/tenure", asgi(engine))


@app.post("/customers/{customer}/hook")
async def register(customer: str, url: str) -> dict[str, str]:
    """A customer says where to send; the answer holds the secret to verify with."""
    made = await engine.outbox.create_application(
        DEFAULT_TENANT, ApplicationIn(name=customer, uid=customer), get_if_exists=True
    )
    endpoint = await engine.outbox.create_endpoint(
        DEFAULT_TENANT, made.value.id, EndpointIn(url=url)
    )
    secret = await engine.outbox.endpoint_secret(
        DEFAULT_TENANT, made.value.id, endpoint.value.id
    )
    return {"endpoint": endpoint.value.id, "secret": secret}


@app.post("/customers/{customer}/invoices/{number}/paid")
async def paid(customer: str, number: int) -> dict[str, str]:
    """Something happened: it returns after the commit, the delivery goes on by itself."""
    body = msgspec.json.encode({"invoice": number, "paid": True})
    accepted = await engine.outbox.accept(
        DEFAULT_TENANT, customer, NewMessage(event_type="invoice.paid", body=body)
    )
    return {"message": accepted.message.id}
