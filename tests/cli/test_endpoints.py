from tenure.testing.receivers import Receiving
from tests.cli.rig import Served, names, tenure, tenure_json


def made(served: Served, receiver: Receiving, *options: str) -> str:
    endpoint = tenure_json(
        "endpoints", "create", receiver.url, "--app", "acme", *options, *served.access
    )
    name: str = endpoint["id"]
    return name


def test_an_endpoint_is_made_with_its_application_and_a_secret(
    served: Served, receiver: Receiving
):
    endpoint = tenure_json(
        "endpoints",
        "create",
        receiver.url,
        "--app",
        "made",
        "--event-type",
        "invoice.paid",
        "--description",
        "for accounting",
        *served.access,
    )
    assert endpoint["secret"].startswith("whsec_")
    assert endpoint["eventTypes"] == ["invoice.paid"]
    listed = tenure_json("endpoints", "list", "--app", "made", *served.access)
    assert names(listed) == [endpoint["id"]]
    assert endpoint["id"] in tenure("endpoints", "list", *served.access).out


def test_a_kind_that_dials_nothing_needs_no_url(served: Served):
    kind = ("--kind", "archive", "--app", "kinds")
    endpoint = tenure_json("endpoints", "create", *kind, *served.access)
    assert endpoint["url"] == endpoint["tenure"]["kind"] == "archive"
    wrong = ("--kind", "fax", "--app", "kinds")
    done = tenure("endpoints", "create", *wrong, *served.access)
    assert done.code == 1
    assert "a kind is one of http, log, archive, slack, chat, or handler:" in done.err


def test_an_endpoint_is_shown_with_its_counts(served: Served, receiver: Receiving):
    endpoint = made(served, receiver)
    shown = tenure_json("endpoints", "show", endpoint, *served.access)
    assert shown["id"] == endpoint
    assert shown["stats"]["success"] == 0
    text = tenure("endpoints", "show", endpoint, *served.access).out
    assert receiver.url in text
    assert "whsec_" not in text


def test_a_disabled_endpoint_keeps_its_backlog_and_sends_it_once_enabled(
    served: Served, receiver: Receiving
):
    sent = tenure_json("send", receiver.url, "{}", "--app", "pause", *served.access)
    disabled = tenure("endpoints", "disable", sent["endpoint"], *served.access)
    assert "is disabled; what waits for it is kept" in disabled.out
    waits = tenure("send", receiver.url, "{}", "--app", "pause", *served.access)
    assert waits.code == 69
    assert "the endpoint is disabled" in waits.out
    assert len(receiver.requests) == 1
    enabled = tenure("endpoints", "enable", sent["endpoint"], *served.access)
    assert "is enabled; what waited goes out now" in enabled.out
    receiver.wait(2)


def test_a_rotation_prints_the_new_secret(served: Served, receiver: Receiving):
    endpoint = made(served, receiver)
    before = tenure("endpoints", "secret", endpoint, *served.access).out.strip()
    rotated = tenure(
        "endpoints", "rotate", endpoint, "--grace-seconds", "60", *served.access
    )
    assert rotated.out.strip().startswith("whsec_")
    assert rotated.out.strip() != before
    assert "60 s" in rotated.err
    assert tenure_json("endpoints", "rotate", endpoint, *served.access)["secret"]


def test_deleting_asks_first(served: Served, receiver: Receiving):
    endpoint = made(served, receiver)
    kept = tenure("endpoints", "delete", endpoint, *served.access, stdin=b"n\n")
    assert kept.code == 1
    assert tenure("endpoints", "show", endpoint, *served.access).code == 0
    done = tenure("endpoints", "delete", endpoint, "--yes", *served.access)
    assert done.code == 0
    assert tenure("endpoints", "show", endpoint, *served.access).code == 3


def test_a_url_that_cannot_be_is_refused_with_the_reason(served: Served):
    done = tenure("endpoints", "create", "ftp://x", "--app", "acme", *served.access)
    assert done.code == 1
    assert "body.url" in done.err
