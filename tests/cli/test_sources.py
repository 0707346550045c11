from tests.cli.rig import Served, names, tenure, tenure_json


def made(served: Served, uid: str, *options: str) -> str:
    source = tenure_json(
        "sources",
        "create",
        "github",
        "--secret",
        "s3cret-of-a-test",
        "--uid",
        uid,
        *options,
        *served.access,
    )
    name: str = source["id"]
    return name


def test_a_source_is_made_in_one_line_and_says_its_url(served: Served):
    done = tenure(
        "sources",
        "create",
        "github",
        "--secret",
        "s3cret-of-a-test",
        "--uid",
        "one-line",
        "--set",
        "rateCount=100",
        "--app",
        "made-with-its-source",
        *served.access,
    )
    assert done.code == 0, done.err
    assert f"{served.url}/in/one-line" in done.out
    assert "curl -X POST" in done.err
    assert "s3cret" not in done.out + done.err
    shown = tenure_json("sources", "show", "one-line", *served.access)
    assert shown["settings"]["rateCount"] == 100
    assert shown["id"] in names(tenure_json("sources", "list", *served.access))
    assert "one-line" in tenure("sources", "list", *served.access).out


def test_a_broker_is_known_by_its_url(served: Served):
    for url, kind in (
        ("redis://127.0.0.1:6379", "redis"),
        ("rediss://127.0.0.1:6379", "redis"),
        ("nats://redis-bus:4222", "nats"),
        ("amqps://127.0.0.1:5671/", "amqp"),
    ):
        pull = ("--pull", url, "--pull-name", "orders")
        made = tenure_json("sources", "create", "none", *pull, *served.access)
        assert made["pull"]["kind"] == kind
        assert tenure_json("sources", "delete", made["id"], *served.access)


def test_a_bad_option_is_told_with_its_place(served: Served):
    done = tenure("sources", "create", "github", *served.access)
    assert done.code == 1
    assert "github needs one" in done.err
    done = tenure("sources", "create", "none", "--set", "x", *served.access)
    assert "'x' is not NAME=VALUE" in done.err


def test_a_source_is_changed_disabled_rotated_and_deleted(served: Served):
    source = made(served, "changed")
    tenure_json("sources", "set", source, "--set", "rateCount=7", *served.access)
    changed = tenure_json(
        "sources", "set", source, "--option", "strict_replay=true", *served.access
    )
    assert changed["settings"]["rateCount"] == 7
    assert changed["verification"]["options"] == {"strict_replay": True}
    off = tenure("sources", "disable", source, *served.access)
    assert "410" in off.out
    assert tenure("sources", "enable", source, *served.access).code == 0
    rotated = tenure("sources", "rotate", source, "--secret", "another", *served.access)
    assert "believes 2 secrets" in rotated.out
    gone = tenure_json("sources", "delete", source, *served.access)
    assert gone == {"deleted": source}


def test_what_was_refused_is_told_with_what_to_look_at(served: Served):
    source = made(served, "refusing")
    url = f"{served.url}/in/refusing"
    wrong = ("trigger", "github.push", "--url", url, "--secret", "wrong")
    assert tenure(*wrong, *served.access).code == 1
    told = tenure("sources", "refused", source, *served.access)
    assert "bad_signature: 1" in told.out
    assert "tenure verify" in told.err
