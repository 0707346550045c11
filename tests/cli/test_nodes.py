from pathlib import Path

from tests.cli.rig import Served, serving, tenure, tenure_json, until


def test_nodes_are_listed(served: Served):
    [node] = tenure_json("nodes", "list", *served.access)
    assert node["pid"] == served.command.process.pid
    assert node["state"] == "open"
    assert str(node["pid"]) in tenure("nodes", "list", *served.database).out


def test_a_closed_node_goes_on_under_a_new_number(tmp_path: Path):
    with serving(tmp_path, TENURE_TEST_TIME_FACTOR="20") as own:
        [node] = tenure_json("nodes", "list", *own.access)
        closed = tenure("nodes", "close", str(node["id"]), *own.database)
        assert closed.code == 0
        again = tenure("nodes", "close", str(node["id"]), *own.database)
        assert again.code == 3

        def reopened() -> bool:
            found = tenure_json("nodes", "list", *own.access)
            return [n["id"] for n in found] == [node["id"] + 1]

        until(reopened, "the new incarnation")
        gone = tenure_json("nodes", "list", "--closed", *own.access)
        assert gone[0]["closedWhy"] == "closed by an operator"
