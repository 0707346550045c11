"""The signature debugger names what people get wrong."""

from __future__ import annotations

import base64

import pytest
from msgspec.structs import replace

from tenure.errors import ValidationFailed
from tenure.inbox.arrivals import Arrival
from tenure.inbox.verification import Verification
from tenure.inbox.verification.debugging import Fault, debug
from tests.inbox.signed import NOW_S, NOW_US, SIGNED, URL, Signed, mac


def faults(
    signed: Signed,
    arrival: Arrival | None = None,
    secret: str | None = None,
    **more: str,
) -> list[Fault]:
    found = debug(
        Verification(preset=signed.preset, options=signed.options),
        signed.secret if secret is None else secret,
        arrival or signed.arrival(),
        now_us=NOW_US,
        **more,  # pyright: ignore[reportArgumentType]
    )
    told = " ".join(each.message for each in found)
    assert len(signed.secret) < 6 or signed.secret not in told
    return [each.fault for each in found]


@pytest.mark.parametrize("name", SIGNED)
def test_what_verifies_has_no_fault(name: str):
    assert faults(SIGNED[name](NOW_S)) == [Fault.VERIFIED]


def test_a_body_that_was_written_anew_is_named():
    signed = SIGNED["stripe"](NOW_S)
    spaced = signed.body.replace(b",", b", ").replace(b":", b": ")
    assert faults(signed, signed.arrival(body=spaced)) == [Fault.REENCODED_BODY]
    ended = signed.arrival(body=signed.body + b"\n")
    assert faults(signed, ended) == [Fault.REENCODED_BODY]


def test_the_secret_in_another_form_is_named():
    signed = SIGNED["standard-webhooks"](NOW_S)
    bare = signed.secret.removeprefix("whsec_")
    assert Fault.SECRET_FORM in faults(signed, secret=bare)
    github = SIGNED["github"](NOW_S)
    assert faults(github, secret=f" {github.secret}") == [
        Fault.SECRET_FORM,
        Fault.SECRET_FORM,
    ]
    encoded = base64.b64encode(github.secret.encode()).decode()
    assert faults(github, secret=encoded) == [Fault.SECRET_FORM]


def test_clocks_are_named():
    signed = SIGNED["slack"](NOW_S - 4000)
    assert faults(signed) == [Fault.CLOCK]
    milliseconds = signed.with_header("x-slack-request-timestamp", f"{NOW_S}000")
    assert Fault.CLOCK in faults(signed, milliseconds)


def test_another_provider_s_request_is_named():
    signed, stripe = SIGNED["github"](NOW_S), SIGNED["stripe"](NOW_S)
    found = faults(signed, stripe.arrival())
    assert found == [Fault.WRONG_HEADER, Fault.OTHER_PRESET]


def test_sha1_alone_is_named():
    signed = SIGNED["github"](NOW_S)
    sha1 = mac(signed.secret.encode(), signed.body, "sha1").hex()
    without = signed.with_header("x-hub-signature-256", None)
    old = replace(
        without, headers=(*without.headers, (b"x-hub-signature", sha1.encode()))
    )
    assert Fault.WEAK_HASH in faults(signed, old)


@pytest.mark.parametrize("url", [URL.replace("https", "http"), f"{URL}/"])
def test_another_url_is_named(url: str):
    signed = SIGNED["square"](NOW_S)
    assert faults(signed, signed.arrival(url=url)) == [Fault.OTHER_URL]


def test_what_nobody_can_explain_is_a_mismatch():
    signed = SIGNED["shopify"](NOW_S)
    assert faults(signed, secret="another") == [Fault.MISMATCH]


def test_an_unknown_preset_is_refused():
    with pytest.raises(ValidationFailed):
        debug(
            Verification(preset="nobody"),
            "s",
            SIGNED["github"](NOW_S).arrival(),
            now_us=NOW_US,
        )
