from tenure.testing import Reply
from tenure.testing.receivers import Receiving
from tests.cli.rig import Served, names, running, tenure, tenure_json


def test_messages_of_all_applications_are_listed_newest_first(
    served: Served, receiver: Receiving
):
    sent = [
        tenure_json("send", receiver.url, "{}", "--app", app, *served.access)["message"]
        for app in ("list-a", "list-b", "list-a")
    ]
    listed = tenure_json("messages", "list", "--limit", "3", *served.access)
    assert names(listed) == sent[::-1]
    only = tenure_json("messages", "list", "--app", "list-b", *served.access)
    assert names(only) == [sent[1]]
    table = tenure("messages", "list", *served.access).out
    assert sent[0] in table


def test_a_message_is_shown_with_its_endpoints_and_attempts(
    served: Served, receiver: Receiving
):
    receiver.answer(Reply(status=400, body=b"no"))
    message = tenure_json_of_failed(served, receiver)
    shown = tenure_json("messages", "show", message, *served.access)
    assert shown["message"]["id"] == message
    assert shown["message"]["payload"] == {"shown": 1}
    assert [e["statusText"] for e in shown["endpoints"]] == ["fail"]
    assert [a["responseStatusCode"] for a in shown["attempts"]] == [400]
    text = tenure("messages", "show", message, *served.access).out
    assert '{"shown":1}' in text
    assert "400" in text


def tenure_json_of_failed(served: Served, receiver: Receiving) -> str:
    done = tenure("send", receiver.url, '{"shown":1}', "--json", *served.access)
    assert done.code == 1
    message: str = done.json()["message"]
    return message


def test_a_message_is_sent_again_under_the_same_id(served: Served, receiver: Receiving):
    receiver.answer(Reply(status=400))
    message = tenure_json_of_failed(served, receiver)
    receiver.answer(Reply(status=200))
    done = tenure("messages", "resend", message, *served.access)
    assert done.code == 0
    assert f"{message} goes again to ep_" in done.out
    first, second = receiver.wait(2)
    assert first.message_id == second.message_id == message
    assert first.body == second.body


def test_a_message_that_is_nowhere_is_not_found(served: Served):
    done = tenure("messages", "show", "msg_unknown", *served.access)
    assert done.code == 3
    assert "none of the applications" in done.err


def test_tail_prints_messages_as_they_come(served: Served, receiver: Receiving):
    access = ("messages", "tail", "--json", "--app", "tail", *served.access)
    tenure_json("send", receiver.url, "{}", "--app", "tail", *served.access)
    with running(served.folder, *access) as tail:
        tail.wait_for(lambda: "waiting" in "".join(tail.errors), "the first look")
        sent = tenure_json("send", receiver.url, "{}", "--app", "tail", *served.access)
        tail.wait_for(lambda: sent["message"] in "".join(tail.lines), "the message")
        assert len(tail.lines) == 1
        tail.signal(2)
        assert tail.ended() == 130
        assert "Traceback" not in "".join(tail.errors)
