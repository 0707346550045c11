from pathlib import Path

from tenure.testing.lab.evidence import Begun
from tenure.testing.lab.faults import Blow, as_faults
from tenure.testing.lab.nodes import NodeProcess

SECOND = 1_000_000


def node(*pids: int) -> NodeProcess:
    return NodeProcess(port=1, environ={}, log=Path("log"), cwd=Path(), pids=list(pids))


def test_others_go_on_before_the_killed_process_is_back():
    blow = Blow(
        what="kill -9",
        at=10 * SECOND,
        since=10 * SECOND,
        in_flight=3,
        pid=1,
        node=node(1, 11, 12),
    )
    begun = [
        Begun(at=9 * SECOND, pid=2),
        Begun(at=10 * SECOND, pid=1),
        Begun(at=11 * SECOND, pid=2),
        Begun(at=13 * SECOND, pid=11),
        Begun(at=14 * SECOND, pid=12),
    ]
    (fault,) = as_faults([blow], begun)
    assert fault.in_flight == 3
    assert fault.others_seconds == 1.0
    assert fault.restarted_seconds == 3.0


def test_one_process_alone_goes_on_when_it_is_back():
    blow = Blow(what="kill -9", at=0, since=0, in_flight=1, pid=1, node=node(1, 2))
    (fault,) = as_faults([blow], [Begun(at=2 * SECOND, pid=2)])
    assert (fault.others_seconds, fault.restarted_seconds) == (2.0, 2.0)


def test_after_a_database_it_counts_from_the_fault_to_what_began_when_it_was_back():
    blow = Blow(what="failover", at=SECOND, since=4 * SECOND, in_flight=9)
    begun = [Begun(at=2 * SECOND, pid=1), Begun(at=5 * SECOND, pid=1)]
    (fault,) = as_faults([blow], begun)
    assert fault.others_seconds == 4.0
    assert fault.restarted_seconds is None


def test_where_nothing_began_any_more_there_is_no_time():
    blow = Blow(what="kill -9", at=5, since=5, in_flight=0, pid=1, node=node(1))
    (fault,) = as_faults([blow], [Begun(at=1, pid=1)])
    assert fault.others_seconds is None
    assert fault.restarted_seconds is None
