from tenure.outbox.keyring import KeyRing
from tests.cli.rig import Served, tenure, tenure_json


def test_a_key_is_made_used_and_revoked(served: Served):
    made = tenure_json("keys", "create", "robot", "--scope", "read", *served.access)
    assert made["scope"] == "read"
    access = ("--server", served.url, "--key", made["token"])
    assert tenure("messages", "list", *access).code == 0
    refused = tenure("endpoints", "create", "http://x", "--app", "x", *access)
    assert refused.code == 77
    listed = tenure("keys", "list", *served.access).out
    assert made["id"] in listed
    assert made["token"] not in listed
    assert tenure("keys", "revoke", made["id"], *served.access).code == 0
    gone = tenure("messages", "list", *access)
    assert gone.code == 77
    assert "refuses this API key" in gone.err


def test_a_key_can_be_made_from_the_database_when_nobody_knows_one(served: Served):
    made = tenure("keys", "create", "found again", *served.database)
    assert made.code == 0
    token = made.out.strip()
    access = ("--server", served.url, "--key", token)
    assert tenure("keys", "list", *access).code == 0


def test_a_scope_that_does_not_exist_is_refused(served: Served):
    assert tenure("keys", "create", "x", "--scope", "root", *served.access).code == 1


def test_a_fresh_key_for_the_ring_opens_what_it_seals():
    done = tenure("key", "new")
    ring = KeyRing([done.out.strip()])
    assert ring.open(ring.seal(b"x")) == b"x"
    assert tenure_json("key", "new")["key"] != done.out.strip()
