from pathlib import Path

from tenure.testing.lab.records import Record, Records


def line(message: str, endpoint: str = "/e0", attempt: int = 1) -> bytes:
    return Record(at=1, endpoint=endpoint, attempt=attempt, message=message).line()


def test_what_is_written_is_counted_at_the_next_look(tmp_path: Path):
    file = tmp_path / "requests"
    file.write_bytes(line("a") + line("a", "/e1"))
    records = Records(file)
    records.look()
    assert (records.requests, records.pairs, records.repeated) == (2, 2, 0)
    with file.open("ab") as more:
        more.write(line("a", attempt=2))
    assert records.requests == 2
    records.look()
    assert (records.requests, records.pairs, records.repeated) == (3, 2, 1)
    assert records.doubled(9) == ("a /e0 attempts [1, 2]",)
    assert records.doubled(0) == ()


def test_a_line_that_is_being_written_waits_for_its_end(tmp_path: Path):
    file = tmp_path / "requests"
    whole = line("a") + line("b")
    file.write_bytes(whole[:-4])
    records = Records(file)
    records.look()
    assert records.requests == 1
    file.write_bytes(whole)
    records.look()
    assert records.requests == 2
    assert records.missing({"a", "b"}, 1) == 0


def test_a_pair_that_never_came_is_missing_however_often_others_did(tmp_path: Path):
    file = tmp_path / "requests"
    file.write_bytes(line("a") + line("a") + line("b") + line("b", "/e1"))
    records = Records(file)
    records.look()
    assert records.missing({"a", "b", "c"}, 2) == 3
