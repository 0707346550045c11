from tenure.testing.receivers import Receiving
from tests.cli.rig import Served, tenure, tenure_json
from tests.cli.test_sources import made


def trigger(served: Served, source: str) -> str:
    told = tenure_json("trigger", "github.push", "--source", source, *served.access)
    receipt: str = told["receiptId"]
    return receipt


def test_what_arrived_while_nobody_listened_is_forwarded_at_the_next_start(
    served: Served, receiver: Receiving
):
    made(served, "listened")
    begin = trigger(served, "listened")
    cursor = tenure("receipts", "show", begin, "--json", *served.access).json()
    assert cursor["id"] == begin
    listen = ("listen", "--source", "listened", "--name", "cli", "--json")
    # The first start keeps the cursor of now; it ends as soon as one was shown.
    now = ("--from", "0.", "--count", "1")
    done = tenure(*listen, *now, "--forward", receiver.url, *served.access)
    assert done.code == 0, done.err
    first = done.json()
    assert first["forwarded"]["status"] == 200, first
    second, third = trigger(served, "listened"), trigger(served, "listened")
    done = tenure(*listen, "--count", "2", *served.access)
    shown = [line for line in done.out.splitlines() if line]
    assert [second in shown[0], third in shown[1]] == [True, True]


def test_listeners_to_different_sources_do_not_move_each_other_on(served: Served):
    made(served, "aaa")
    made(served, "bbb")
    begin = ("--from", "0.", "--count", "1", "--json")
    trigger(served, "aaa")
    trigger(served, "bbb")
    for source in ("aaa", "bbb"):
        done = tenure("listen", "--source", source, *begin, *served.access)
        assert done.code == 0, done.err
    missed, later = trigger(served, "aaa"), trigger(served, "bbb")
    for source, receipt in (("bbb", later), ("aaa", missed)):
        one = ("--source", source, "--count", "1", "--json")
        assert receipt in tenure("listen", *one, *served.access).out


def test_a_type_is_filtered_and_a_failed_forward_is_told(served: Served):
    made(served, "filtered")
    wanted = ("--type", "pus*", "--count", "1", "--name", "typed", "--from", "0.")
    trigger(served, "filtered")
    done = tenure(
        "listen",
        "--source",
        "filtered",
        *wanted,
        "--forward",
        "http://127.0.0.1:9/x",
        *served.access,
    )
    assert done.code == 0, done.err
    assert "push rcpt_" in done.out
    assert "refused" in done.out.lower()
    bad = tenure("listen", "--forward", "ftp://x", *served.access)
    assert bad.code == 1
