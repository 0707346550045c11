from __future__ import annotations

import pytest

from tenure import limits
from tenure.outbox.http import Request, parse_url
from tenure.outbox.http.encode import Encoder

URL = parse_url("http://example.com:8080/a?b=%20c")


def request(
    *headers: tuple[bytes, bytes], method: str = "POST", body: bytes = b"{}"
) -> Request:
    return Request(method=method, url=URL, headers=headers, body=body)


def test_bytes_case_and_order_are_as_given_after_host_and_length() -> None:
    wire = Encoder().encode(
        request(
            (b"WeBhOoK-Id", b"msg_1"), (b"a", b"\xe9"), (b"A", b""), (b"x%d", b"%s")
        )
    )
    assert wire == (
        b"POST /a?b=%20c HTTP/1.1\r\nHost: example.com:8080\r\nContent-Length: 2\r\n"
        b"WeBhOoK-Id: msg_1\r\na: \xe9\r\nA: \r\nx%d: %s\r\n\r\n{}"
    )


def test_a_remembered_shape_writes_the_values_of_each_request() -> None:
    encoder = Encoder()
    first = encoder.encode(request((b"a", b"1"), body=b"x"))
    second = encoder.encode(request((b"a", b"2"), body=b"yy"))
    assert first.endswith(b"Content-Length: 1\r\na: 1\r\n\r\nx")
    assert second.endswith(b"Content-Length: 2\r\na: 2\r\n\r\nyy")
    assert encoder.encode(request((b"a", b"2"), method="PUT")).startswith(b"PUT ")


@pytest.mark.parametrize(
    "header",
    [
        (b"x", b"a\r\nEvil: 1"),
        (b"x", b"a\nEvil: 1"),
        (b"x", b"a\r"),
        (b"x", b"\0"),
        (b"x\r\nEvil", b"1"),
        (b"x y", b"1"),
        (b"x:", b"1"),
        (b"", b"1"),
        (b"\xe9", b"1"),
        (b"Host", b"evil.example"),
        (b"content-LENGTH", b"0"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Expect", b"100-continue"),
    ],
)
def test_a_header_that_could_split_or_reframe_the_request_is_refused(
    header: tuple[bytes, bytes],
) -> None:
    with pytest.raises(ValueError, match="header"):
        Encoder().encode(request(header))


@pytest.mark.parametrize("method", ["GET", "HEAD", "CONNECT", "post", "PO ST", ""])
def test_a_method_that_is_not_sent_is_refused(method: str) -> None:
    with pytest.raises(ValueError, match="not sent"):
        Encoder().encode(request(method=method))


def test_remembered_shapes_are_bounded() -> None:
    encoder = Encoder()
    for number in range(limits.HEAD_SHAPES_MAX * 2 + 1):
        encoder.encode(request((b"x-%d" % number, b"1")))
    assert len(encoder._shapes) <= limits.HEAD_SHAPES_MAX
