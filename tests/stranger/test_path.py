"""What a new user does in the first ten minutes, as one story."""

import signal
from pathlib import Path

import pytest

from tenure.testing.receivers import receiving
from tests.cli.rig import LOOPBACK, run, running, until


@pytest.mark.timeout(300)
def test_from_nothing_to_a_failure_its_reason_and_the_delivery_after_all(
    tmp_path: Path,
):
    """Serve, send, receiver down, kill, restart, explain, fix, delivered."""
    serve = ("serve", "--port", "0", "--json", "--log-level", "error", *LOOPBACK)
    with receiving() as receiver:
        url = f"{receiver.url}/hook"
        with running(tmp_path, *serve) as server:
            server.event("key")
            server.event("listening")
            first = run(tmp_path, "send", url, '{"hello":1}')
            assert first.code == 0, first.err
            assert "answered 200" in first.out

            receiver.stop()
            second = run(tmp_path, "send", url, '{"hello":2}')
            assert second.code == 69
            assert "failed: refused" in second.out
            message = second.out.split()[1]

            server.signal(signal.SIGKILL)
            server.ended()

        def nobody_is_there() -> bool:
            said = run(tmp_path, "explain", message)
            return "has been heard for" in said.out and "`tenure serve`" in said.err

        until(nobody_is_there, "the silence of the server that was killed")

        with running(tmp_path, *serve) as again:
            again.event("listening")
            why = run(tmp_path, "explain", message)
            assert why.code == 0
            assert "attempt 1" in why.out
            assert "refused" in why.out
            assert "rule: " in why.out

            receiver.start()
            assert run(tmp_path, "messages", "resend", message).code == 0
            assert receiver.wait(2, seconds=60)[1].body == b'{"hello":2}'

            def delivered() -> bool:
                return "succeeded" in run(tmp_path, "explain", message).out

            until(delivered, "the delivery")
            again.signal()
            assert again.ended() == 0
