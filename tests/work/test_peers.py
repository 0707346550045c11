from __future__ import annotations

from tenure.ids import NodeId
from tenure.store.nodes import NodeRow
from tenure.work.peers import Peers, Silent


def peer(beat: int, node: int = 2) -> NodeRow:
    return NodeRow(
        id=NodeId(node),
        name="n",
        host="h",
        pid=1,
        version="v",
        serves="",
        lock_path=None,
        state="open",
        beat=beat,
        beat_at=0,
        tick=0,
        tick_at=None,
        started_at=0,
        closed_at=None,
        closed_why=None,
    )


def watch(peers: Peers, beats: list[int], *, server: str = "s") -> list[list[Silent]]:
    """Beat every 5 s while the peer shows these beat numbers."""
    return [
        peers.beaten([peer(beat)], server=server, now=at * 5.0)
        for at, beat in enumerate(beats)
    ]


def fresh() -> Peers:
    return Peers(beat_seconds=5.0, dead_after=40.0)


def test_a_peer_is_silent_after_forty_seconds_of_one_beat_number() -> None:
    found = watch(fresh(), [7] * 9)
    assert found[:8] == [[]] * 8
    assert found[8] == [Silent(node=NodeId(2), beat=7)]


def test_a_peer_that_beats_is_never_silent() -> None:
    assert watch(fresh(), [n // 7 for n in range(30)]) == [[]] * 30


def test_a_failed_beat_of_ones_own_starts_the_watch_anew() -> None:
    peers = fresh()
    watch(peers, [7] * 8)
    peers.failed()
    assert peers.beaten([peer(7)], server="s", now=40.0) == []
    assert peers.beaten([peer(7)], server="s", now=45.0) == []


def test_another_server_starts_the_watch_anew() -> None:
    peers = fresh()
    watch(peers, [7] * 8)
    assert peers.beaten([peer(7)], server="standby", now=40.0) == []


def test_a_watcher_that_slept_starts_the_watch_anew() -> None:
    peers = fresh()
    watch(peers, [7] * 2)
    assert peers.beaten([peer(7)], server="s", now=65.0) == []
    assert peers.beaten([peer(7)], server="s", now=70.0) == []


def test_a_peer_that_left_is_forgotten() -> None:
    peers = fresh()
    watch(peers, [7] * 4)
    assert peers.beaten([], server="s", now=20.0) == []
    assert peers.beaten([peer(7)], server="s", now=25.0) == []
    for at in (30.0, 35.0, 40.0):
        assert peers.beaten([peer(7)], server="s", now=at) == []
