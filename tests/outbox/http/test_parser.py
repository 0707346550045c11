from __future__ import annotations

from itertools import pairwise

import aiohttp
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tenure import limits
from tenure.outbox.http import Cause, HttpTransport, Phase, Policy, Response
from tenure.outbox.http.parser import ResponseParser
from tests.outbox.http.servers import Names, Peer, policy, post, serving

POLICY = Policy(deadline_seconds=1)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def parse(*pieces: bytes, end: bool = False, policy: Policy = POLICY) -> ResponseParser:
    parser = ResponseParser(policy)
    for piece in pieces:
        if parser.feed(piece):
            return parser
    if end:
        parser.end()
    return parser


def refused(
    *pieces: bytes, end: bool = False, policy: Policy = POLICY
) -> tuple[Cause, Phase, str]:
    parser = parse(*pieces, end=end, policy=policy)
    assert parser.finished
    assert parser.fault is not None
    assert not parser.reusable
    return parser.fault.cause, parser.fault.phase, parser.fault.detail


def with_length(body: bytes, *headers: bytes) -> bytes:
    lines = b"".join(h + b"\r\n" for h in headers)
    return b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (
        lines,
        len(body),
        body,
    )


@pytest.mark.parametrize(
    ("wire", "status", "body", "reusable"),
    [
        (with_length(b"hello"), 200, b"hello", True),
        (with_length(b""), 200, b"", True),
        (with_length(b"x", b"Connection: close"), 200, b"x", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, b"x", False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
        (b"HTTP/1.1 304 Not\r\nContent-Length: 9\r\n\r\n", 304, b"", True),
        (b"HTTP/1.1 404\r\nContent-Length: 0\r\n\r\n", 404, b"", True),
        (CHUNKED + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n", 200, b"abcde", True),
        (CHUNKED + b"1\r\na\r\n0\r\nTrailer: dropped\r\n\r\n", 200, b"a", True),
        (
            with_length(b"ok", b"Upgrade: h2,h2c", b"Connection: Upgrade, Keep-Alive"),
            200,
            b"ok",
            True,
        ),
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n"
            + with_length(b"z"),
            200,
            b"z",
            True,
        ),
    ],
)
def test_a_well_formed_response_is_read_in_any_pieces(
    wire: bytes, status: int, body: bytes, reusable: bool
) -> None:
    for parser in (parse(wire), parse(*(wire[i : i + 1] for i in range(len(wire))))):
        assert parser.finished
        assert parser.fault is None
        assert (parser.status, parser.body, parser.truncated) == (status, body, False)
        assert parser.reusable is reusable


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    parser = parse(b"HTTP/1.1 200 OK\r\n\r\nuntil", b" the end")
    assert not parser.finished
    parser.end()
    assert parser.fault is None
    assert parser.body == b"until the end"
    assert not parser.reusable


def test_headers_keep_bytes_case_and_order_and_drop_interim_ones() -> None:
    parser = parse(
        b"HTTP/1.1 103 Hints\r\nEarly: 1\r\n\r\n"
        + with_length(b"\xff\xfe", b"X-B: \xe9\xff", b"x-a:", b"X-B: 2")
    )
    assert parser.headers == (
        (b"X-B", b"\xe9\xff"),
        (b"x-a", b""),
        (b"X-B", b"2"),
        (b"Content-Length", b"2"),
    )
    assert parser.body == b"\xff\xfe"


@pytest.mark.parametrize(
    ("wire", "detail"),
    [
        (b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n", "status"),
        (b"HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n", "status"),
        (b"HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n", "status is 099"),
        (b"HTTP/1.1 600 OK\r\nContent-Length: 0\r\n\r\n", "status is 600"),
        (b"HTTP/1.1 +20 OK\r\n\r\n", "status"),
        (b"HTTP/1.1 200OK\r\n\r\n", "status"),
        (b"HTTP/2.0 200 OK\r\n\r\n", "not HTTP/1"),
        (b"HTTP/0.9 200 OK\r\n\r\n", "not HTTP/1"),
        (b"HTTP/1.2 200 OK\r\n\r\n", "version"),
        (b"ICE/1.0 200 OK\r\n\r\n", "not HTTP/1"),
        (b"RTSP/1.0 200 OK\r\n\r\n", "not HTTP/1"),
        (b"\r\nHTTP/1.1 200 OK\r\n\r\n", "not HTTP/1"),
        (b"<html>hello</html>", "not HTTP/1"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "not HTTP/1"),
        (b"HTTP/1.1 200 OK\nContent-Length: 0\n\n", "CR"),
        (with_length(b"a", b"Content-Length: 1"), "Content-Length"),
        (with_length(b"a", b"Content-Length: 2"), "Content-Length"),
        (with_length(b"a", b"Transfer-Encoding: chunked"), "Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\na", "Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\na", "Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1e3\r\n\r\na", "Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % 2**64, "overflow"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "not plain chunked",
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nx", "not plain"),
        (
            CHUNKED[:-2] + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "more than one",
        ),
        (
            b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "not plain chunked",
        ),
        (b"HTTP/1.1 200 OK\r\nNo colon\r\n\r\n", "header token"),
        (b"HTTP/1.1 200 OK\r\nX : y\r\n\r\n", "header token"),
        (b"HTTP/1.1 200 OK\r\nX: a\r\n folded\r\n\r\n", "whitespace"),
        (b"HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n", "header value"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\n\r\n", "101"),
        (
            b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
            "101",
        ),
        (b"HTTP/1.1 100 C\r\n\r\n" * (limits.INFORMATIONAL_MAX + 1), "1xx"),
        (CHUNKED + b"zz\r\n", "chunk size"),
        (CHUNKED + b"5\r\nhelloXX", "chunk data"),
        (CHUNKED + b"f" * 20 + b"\r\n", "overflow"),
    ],
)
def test_a_malformed_response_is_a_named_protocol_error(
    wire: bytes, detail: str
) -> None:
    for pieces in ([wire], [wire[i : i + 1] for i in range(len(wire))]):
        cause, _, found = refused(*pieces)
        assert cause is Cause.PROTOCOL
        assert detail in found


@pytest.mark.parametrize(
    ("wire", "phase", "detail"),
    [
        (b"HTTP", Phase.HEADERS, "inside the response head"),
        (b"HTTP/1.1 200 OK\r\nX: y\r\n", Phase.HEADERS, "inside the response head"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", Phase.HEADERS, "inside the response head"),
        (with_length(b"hello")[:-2], Phase.BODY, "after 3 body bytes"),
        (CHUNKED + b"5\r\nhel", Phase.BODY, "after 3 body bytes"),
        (CHUNKED + b"5\r\nhello\r\n", Phase.BODY, "after 5 body bytes"),
        (CHUNKED + b"5\r\nhello\r\n0\r\n", Phase.BODY, "after 5 body bytes"),
    ],
)
def test_a_response_that_ends_too_early_is_a_protocol_error(
    wire: bytes, phase: Phase, detail: str
) -> None:
    assert refused(wire, end=True)[:2] == (Cause.PROTOCOL, phase)
    assert detail in refused(wire, end=True)[2]


def test_an_end_without_a_byte_is_a_reset() -> None:
    assert refused(end=True)[:2] == (Cause.RESET, Phase.HEADERS)


def test_bytes_after_the_response_leave_it_whole_and_the_connection_unusable() -> None:
    for surplus in (b"x", with_length(b"second"), b"HTTP/1.1 500 Evil\r\n\r\n"):
        parser = parse(with_length(b"first") + surplus)
        assert parser.fault is None
        assert (parser.status, parser.body) == (200, b"first")
        assert not parser.reusable


def test_a_body_at_the_cap_is_whole_and_one_byte_more_is_cut() -> None:
    cap = POLICY.response_max_bytes
    whole = parse(with_length(b"a" * cap))
    assert (len(whole.body), whole.truncated, whole.reusable) == (cap, False, True)
    for wire in (
        with_length(b"a" * cap + b"b"),
        CHUNKED + b"fffff\r\n" + b"a" * 40_000,
    ):
        cut = parse(wire)
        assert cut.fault is None
        assert (cut.body, cut.truncated, cut.reusable) == (b"a" * cap, True, False)


def test_headers_at_the_count_are_read_and_one_more_is_too_large() -> None:
    count = POLICY.header_count_max
    lines = [b"X-%d: y" % n for n in range(count - 1)]
    assert len(parse(with_length(b"", *lines)).headers) == count
    assert refused(with_length(b"", *lines, b"Z: 1"))[0] is Cause.TOO_LARGE


def test_ten_thousand_headers_are_too_large_whole_or_in_pieces() -> None:
    wire = with_length(b"", *(b"X-%d: y" % n for n in range(10_000)))
    assert refused(wire)[:2] == (Cause.TOO_LARGE, Phase.HEADERS)
    assert refused(*(wire[i : i + 7] for i in range(0, len(wire), 7)))[0] == (
        Cause.TOO_LARGE
    )


def test_a_header_line_over_its_cap_is_too_large() -> None:
    cap = POLICY.header_line_max_bytes
    assert parse(with_length(b"", b"X: " + b"y" * (cap - 8))).fault is None
    assert refused(with_length(b"", b"X: " + b"y" * cap))[0] is Cause.TOO_LARGE


def test_a_megabyte_of_one_header_line_is_refused_before_it_ends() -> None:
    parser = ResponseParser(POLICY)
    parser.feed(b"HTTP/1.1 200 OK\r\nX: ")
    fed = 0
    while not parser.feed(b"y" * 1024):
        fed += 1024
        assert fed <= POLICY.head_max_bytes
    assert parser.fault is not None
    assert parser.fault.cause is Cause.TOO_LARGE


def test_a_head_over_its_cap_in_short_lines_is_too_large() -> None:
    lines = [b"X-%d: " % n + b"y" * 8000 for n in range(10)]
    assert refused(with_length(b"", *lines))[0] is Cause.TOO_LARGE


def test_an_endless_status_line_is_too_large() -> None:
    parser = ResponseParser(POLICY)
    parser.feed(b"HTTP/1.1 200 ")
    for _ in range(70):
        if parser.feed(b"O" * 1024):
            break
    assert parser.fault is not None
    assert parser.fault.cause is Cause.TOO_LARGE


@pytest.mark.parametrize(
    "piece",
    [b"y" * 1024, b"1\r\n", b"X: y\r\n"],
    ids=["extension", "chunks", "trailers"],
)
def test_endless_chunk_framing_ends_at_a_bound(piece: bytes) -> None:
    start = {b"y": b"1;", b"1": b"", b"X": b"0\r\n"}[piece[:1]]
    if piece.startswith(b"1"):
        piece = b"1;" + b"e" * 100 + b"\r\na\r\n"
    parser = ResponseParser(POLICY)
    fed = parser.feed(CHUNKED + start)
    count = 0
    while not fed:
        fed = parser.feed(piece)
        count += len(piece)
        assert count < 1024 * 1024
    assert parser.fault is not None
    assert parser.fault.cause is Cause.TOO_LARGE


def test_a_reset_parser_reads_the_next_response_as_if_it_were_new() -> None:
    parser = parse(with_length(b"first", b"X: 1"))
    parser.reset(POLICY)
    assert not parser.finished
    assert parser.feed(with_length(b"second"))
    assert parser.headers == ((b"Content-Length", b"6"),)
    assert parser.body == b"second"


VALID = st.sampled_from(
    [
        with_length(b"hello world", b"Content-Type: text/plain", b"X-Y: \xff"),
        CHUNKED + b"5\r\nhello\r\n6;e=1\r\n world\r\n0\r\nT: v\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end",
        b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 204 No Content\r\nX: y\r\n\r\n",
        b"HTTP/1.0 503 Busy\r\nRetry-After: 5\r\n\r\n",
        with_length(b"a" * 40_000),
    ]
)
MUTATION = st.tuples(
    st.sampled_from(["put", "drop", "flip", "double"]),
    st.floats(0, 1),
    st.one_of(
        st.binary(min_size=1, max_size=6),
        st.sampled_from([b"\r\n", b"\0", b"\r\n\r\n", b":", b"HTTP/1.1 ", b"9" * 30]),
    ),
)


def mutate(wire: bytes, mutations: list[tuple[str, float, bytes]]) -> bytes:
    for kind, where, data in mutations:
        at = int(where * len(wire))
        match kind:
            case "put":
                wire = wire[:at] + data + wire[at:]
            case "drop":
                wire = wire[:at] + wire[at + len(data) :]
            case "flip":
                wire = wire[:at] + data + wire[at + len(data) :]
            case _:
                wire = wire[:at] + wire[max(0, at - 40) :]
    return wire


@given(VALID, st.lists(MUTATION, max_size=4), st.lists(st.floats(0, 1), max_size=6))
@example(b"", [], [])
def test_no_mutation_in_any_pieces_escapes_the_bounds_or_raises(
    wire: bytes, mutations: list[tuple[str, float, bytes]], cuts: list[float]
) -> None:
    wire = mutate(wire, mutations)
    places = sorted({0, len(wire), *(int(cut * len(wire)) for cut in cuts)})
    parser = ResponseParser(POLICY)
    for start, stop in pairwise(places):
        if parser.feed(wire[start:stop]):
            break
    parser.end()
    assert parser.finished
    assert len(parser.body) <= POLICY.response_max_bytes
    assert len(parser.headers) <= POLICY.header_count_max + 1
    if parser.fault is None:
        assert 200 <= parser.status <= 599
        assert parser.http_version in {"1.0", "1.1"}
    else:
        assert parser.fault.detail
        assert len(parser.fault.detail) <= limits.FAILURE_DETAIL_MAX
        assert parser.body == b""


@given(VALID, st.lists(MUTATION, max_size=3), st.lists(st.floats(0, 1), max_size=6))
def test_how_the_bytes_are_cut_never_changes_what_they_mean(
    wire: bytes, mutations: list[tuple[str, float, bytes]], cuts: list[float]
) -> None:
    wire = mutate(wire, mutations)
    places = sorted({0, len(wire), *(int(cut * len(wire)) for cut in cuts)})
    pieces = [wire[a:b] for a, b in pairwise(places)]
    whole, cut = parse(wire, end=True), parse(*pieces, end=True)
    assert (whole.status, whole.body, whole.truncated, whole.headers) == (
        cut.status,
        cut.body,
        cut.truncated,
        cut.headers,
    )
    assert (whole.fault is None) == (cut.fault is None)


# The same well-formed responses, read by our client and by aiohttp's.
TOKEN = st.from_regex(rb"[A-Za-z][A-Za-z0-9-]{0,12}", fullmatch=True)
VALUE = st.from_regex(rb"([!-~]([ -~]{0,20}[!-~])?)?", fullmatch=True)
FRAMING = {
    b"content-length",
    b"transfer-encoding",
    b"connection",
    b"content-encoding",
    b"upgrade",
    b"set-cookie",
    b"keep-alive",
}
PLAIN_HEADERS = st.lists(
    st.tuples(TOKEN, VALUE).filter(lambda pair: pair[0].lower() not in FRAMING),
    max_size=8,
)


def chunked(body: bytes, size: int) -> bytes:
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    lines = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return lines + b"0\r\n\r\n"


def answer(
    status: int,
    headers: list[tuple[bytes, bytes]],
    body: bytes,
    framing: str,
    size: int,
) -> bytes:
    head = b"HTTP/1.1 %d Reason\r\n" % status
    head += b"".join(b"%b: %b\r\n" % pair for pair in headers)
    if status in {204, 304}:
        return head + b"\r\n"
    match framing:
        case "length":
            return head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        case "chunked":
            return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(body, size)
        case _:
            return head + b"Connection: close\r\n\r\n" + body


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
async def test_well_formed_responses_mean_the_same_to_aiohttp(
    names: Names, framing: str
) -> None:
    cases: list[tuple[int, list[tuple[bytes, bytes]], bytes, int]] = []

    @settings(
        max_examples=40,
        database=None,
        suppress_health_check=[HealthCheck.filter_too_much],
    )
    @given(
        st.sampled_from([200, 201, 204, 299, 302, 304, 400, 410, 429, 500, 503, 599]),
        PLAIN_HEADERS,
        st.binary(max_size=300),
        st.integers(1, 50),
    )
    def collect(
        status: int, headers: list[tuple[bytes, bytes]], body: bytes, size: int
    ) -> None:
        cases.append((status, headers, body, size))

    collect()
    wires = iter(answer(s, h, b, framing, n) for s, h, b, n in cases for _ in range(2))

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.write(next(wires))

    transport = HttpTransport(resolver=names)
    async with serving(script) as server, aiohttp.ClientSession() as session:
        for _ in cases:
            ours = await transport.send(post(server.url), policy())
            assert isinstance(ours, Response), ours
            async with session.post(
                server.url, data=b"{}", allow_redirects=False
            ) as theirs:
                body = await theirs.read()
                assert ours.status == theirs.status
                assert ours.body == body
                assert ours.headers == tuple(theirs.raw_headers)
    await transport.aclose()
