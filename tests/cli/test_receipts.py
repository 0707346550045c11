import base64

from tenure.testing.receivers import Receiving
from tests.cli.rig import Served, names, tenure, tenure_json
from tests.cli.test_sources import made


def test_a_receipt_is_listed_shown_and_replayed(served: Served, receiver: Receiving):
    app = tenure_json(
        "endpoints", "create", receiver.url, "--app", "rc", *served.access
    )
    made(served, "receipts", "--app", app["appId"])
    sent = tenure_json("trigger", "github.push", "--source", "receipts", *served.access)
    receipt = sent["receiptId"]
    listed = tenure_json("receipts", "list", "--source", "receipts", *served.access)
    assert names(listed) == [receipt]
    shown = tenure_json("receipts", "show", receipt, *served.access)
    assert shown["eventType"] == "push"
    assert b"octo/example" in base64.b64decode(shown["body"])
    text = tenure("receipts", "show", receipt, *served.access).out
    assert "x-hub-signature-256: sha256=" in text
    assert "octo/example" in text
    again = tenure_json("receipts", "replay", receipt, *served.access)
    assert [each["answer"] for each in again] in [["ready"], ["woken"], ["in flight"]]
