import json

import pytest

from tenure.cli.access import Api
from tenure.cli.remote import Remote
from tenure.errors import (
    BadRequest,
    ConfigInvalid,
    Conflict,
    InvariantViolated,
    ServerUnreachable,
    TenureError,
    Unavailable,
    ValidationFailed,
)
from tenure.testing import Reply
from tenure.testing.receivers import Receiving


def answer(receiver: Receiving, status: int, body: object) -> None:
    receiver.answer(Reply(status=status, body=json.dumps(body).encode()))


def test_the_key_and_the_body_are_sent_and_the_answer_is_decoded(receiver: Receiving):
    answer(receiver, 201, {"id": "x"})
    api = Api(Remote(f"{receiver.url}/mounted/", "the key"))
    assert api.post("/api/v1/app", {"name": "é"}, get_if_exists=True, none=None) == {
        "id": "x"
    }
    [received] = receiver.requests
    assert received.target == "/mounted/api/v1/app?get_if_exists=true"
    assert received.header("authorization") == "Bearer the key"
    assert json.loads(received.body) == {"name": "é"}
    assert receiver.url in api.where


def test_a_list_is_read_page_by_page_up_to_its_bound(receiver: Receiving):
    pages = {
        "/x?limit=3": {"data": [1, 2], "iterator": "i", "done": False},
        "/x?limit=1&iterator=i": {"data": [3], "iterator": "j", "done": False},
    }
    receiver.answer(lambda r: Reply(body=json.dumps(pages[r.target]).encode()))
    assert list(Api(Remote(receiver.url, "k")).pages("/x", 3)) == [1, 2, 3]


@pytest.mark.parametrize(
    ("status", "body", "error", "text"),
    [
        (409, {"code": "conflict", "detail": "taken"}, Conflict, "taken"),
        (418, {"code": "teapot", "detail": "short"}, BadRequest, "short"),
        (500, {"code": "internal_error", "detail": "log"}, InvariantViolated, "log"),
        (502, "bad gateway", Unavailable, "bad gateway"),
        (
            422,
            {"detail": [{"loc": ["body", "url"], "msg": "no", "type": "value_error"}]},
            ValidationFailed,
            "body.url: no",
        ),
    ],
)
def test_a_refusal_becomes_the_error_that_the_server_raised(
    receiver: Receiving,
    status: int,
    body: object,
    error: type[TenureError],
    text: str,
):
    answer(receiver, status, body)
    with pytest.raises(error, match=text):
        Api(Remote(receiver.url, "k")).get("/x")


def test_a_server_that_is_not_there_is_named(receiver: Receiving):
    url = receiver.url
    receiver.stop()
    with pytest.raises(ServerUnreachable, match="nothing listens there"):
        Api(Remote(url, "k")).get("/x")
    receiver.start()
    receiver.answer(Reply(close=True))
    with pytest.raises(ServerUnreachable, match=url):
        Api(Remote(url, "k")).get("/x")


@pytest.mark.parametrize("server", ["127.0.0.1:8071", "ftp://x", "http://x:99999"])
def test_an_address_that_is_none_is_refused(server: str):
    with pytest.raises(ConfigInvalid, match="--server"):
        Remote(server, "k")


def test_a_key_with_a_line_break_is_refused(receiver: Receiving):
    with pytest.raises(ConfigInvalid, match="copy it again"):
        Api(Remote(receiver.url, "a\nb")).get("/x")
    assert receiver.requests == []
