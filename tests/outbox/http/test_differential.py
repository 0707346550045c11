"""The same well-formed responses, read by our client and by aiohttp's."""

from __future__ import annotations

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenure.outbox.http import HttpTransport, Response
from tests.outbox.http.servers import Names, Peer, policy, post, serving

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
HEADERS = st.lists(
    st.tuples(TOKEN, VALUE).filter(lambda pair: pair[0].lower() not in FRAMING),
    max_size=8,
)


def chunked(body: bytes, size: int) -> bytes:
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    lines = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return lines + b"0\r\n\r\n"


def response(
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
        HEADERS,
        st.binary(max_size=300),
        st.integers(1, 50),
    )
    def collect(
        status: int, headers: list[tuple[bytes, bytes]], body: bytes, size: int
    ) -> None:
        cases.append((status, headers, body, size))

    collect()
    wires = iter(
        response(s, h, b, framing, n) for s, h, b, n in cases for _ in range(2)
    )

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
