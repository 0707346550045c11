from tests.cli.rig import Served, tenure, tenure_json
from tests.cli.test_sources import made


def test_a_signed_sample_is_accepted_by_its_source(served: Served):
    made(served, "triggered")
    inside = tenure_json(
        "trigger", "github.issues.opened", "--source", "triggered", *served.access
    )
    assert inside["status"] == 200
    url = f"{served.url}/in/triggered"
    outside = tenure_json(
        "trigger",
        "github.push",
        "--url",
        url,
        "--secret",
        "s3cret-of-a-test",
        *served.access,
    )
    assert outside["status"] == 200
    assert outside["receiptId"] != inside["receiptId"]


def test_what_cannot_be_triggered_says_why(served: Served):
    made(served, "mismatched")
    for arguments, why in (
        (("github",), "write PRESET.EVENT"),
        (("github.push",), "give --source SOURCE, or --url"),
        (("stripe.x", "--source", "mismatched"), "verifies github, not stripe"),
        (("nobody.x", "--url", "http://127.0.0.1:9/", "--secret", "s"), "no preset"),
    ):
        done = tenure("trigger", *arguments, *served.access)
        assert done.code != 0
        assert why in done.err
