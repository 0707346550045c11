import hmac
from pathlib import Path

from tenure.outbox.secrets import parse_secret
from tenure.outbox.signing import signature_header
from tests.cli.rig import tenure

SECRET = "whsec_" + "C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
BODY = b'{"n": 1}'
SIGNED = signature_header([parse_secret(SECRET)], "msg_1", 1_767_225_600, BODY)
REQUEST = (
    "--secret",
    SECRET,
    "-H",
    "webhook-id: msg_1",
    "-H",
    "Webhook-Timestamp:1767225600",
    "-H",
    f"webhook-signature: {SIGNED}",
    "--at",
    "1767225600",
)


def test_a_signature_that_holds_is_said_to_hold():
    done = tenure("verify", BODY.decode(), *REQUEST)
    assert done.code == 0
    assert done.out.startswith("verified: ")
    assert SECRET not in done.out + done.err


def test_a_body_that_was_encoded_again_is_named(tmp_path: Path):
    file = tmp_path / "body"
    file.write_bytes(b'{"n":1}')
    done = tenure("verify", f"@{file}", *REQUEST, "--json")
    assert done.code == 1
    assert [f["code"] for f in done.json()["findings"]] == ["reencoded_body"]


def test_the_body_can_come_from_standard_input():
    assert tenure("verify", "-", *REQUEST, stdin=BODY).code == 0


def test_a_clock_that_is_off_is_named():
    done = tenure("verify", BODY.decode(), *REQUEST[:-1], "1767229200")
    assert done.code == 1
    assert "clock" in done.out


def test_a_header_without_a_colon_and_a_missing_file_are_refused(tmp_path: Path):
    bad = tenure("verify", "x", "--secret", SECRET, "-H", "webhook-id msg_1")
    assert bad.code == 1
    assert "no colon" in bad.err
    missing = tenure("verify", f"@{tmp_path / 'none'}", *REQUEST)
    assert missing.code == 1
    assert "cannot be read" in missing.err


def test_another_provider_s_request_is_explained_by_its_preset() -> None:
    body = '{"a": 1}'
    signature = hmac.new(b"s", body.encode(), "sha256").hexdigest()
    given = ("--preset", "github", "--secret", "s", "-H")
    good = tenure("verify", body, *given, f"X-Hub-Signature-256: sha256={signature}")
    assert (good.code, "verified" in good.out) == (0, True)
    spaced = tenure(
        "verify", '{"a":1}', *given, f"X-Hub-Signature-256: sha256={signature}"
    )
    assert spaced.code == 1
    assert "reencoded_body" in spaced.out
