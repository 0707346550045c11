from tenure.testing import Reply
from tenure.testing.receivers import Receiving
from tests.cli.rig import Served, tenure, tenure_json


def test_an_explanation_says_what_came_back_and_when_it_goes_on(
    served: Served, receiver: Receiving
):
    receiver.answer(Reply(status=500))
    sent = tenure("send", receiver.url, "{}", "--json", *served.access).json()
    done = tenure("explain", sent["message"], *served.access)
    assert done.code == 0
    assert f"to {sent['endpoint']}" in done.out
    assert "attempt 1" in done.out
    assert "status 500" in done.out
    assert "failed  status 500  next" in done.out
    assert "rule: " in done.out


def test_a_work_row_is_explained_by_its_own_id(served: Served, receiver: Receiving):
    sent = tenure_json("send", receiver.url, "{}", *served.access)
    found = tenure_json("explain", sent["workId"], *served.access)
    assert [d["workId"] for d in found["deliveries"]] == [sent["workId"]]
    assert found["message"]["id"] == sent["message"]
    assert found["deliveries"][0]["state"] == "succeeded"


def test_an_endpoint_that_was_not_meant_says_why(served: Served, receiver: Receiving):
    options = ("--app", "explain", *served.access)
    tenure_json("send", f"{receiver.url}/one", "{}", *options)
    sent = tenure_json("send", f"{receiver.url}/two", "{}", *options)
    done = tenure("explain", sent["message"], *served.access)
    assert "not to ep_" in done.out
    assert "other channels" in done.out


def test_what_nobody_knows_is_not_found(served: Served):
    assert tenure("explain", "wrk_unknown", *served.access).code == 3
