from pathlib import Path

from tests.cli.rig import tenure, tenure_json


def test_a_plan_lists_what_is_missing_and_changes_nothing(tmp_path: Path):
    file = tmp_path / "tenure.db"
    database = ("--database-url", f"sqlite:///{file}")
    missing = tenure("migrate", "plan", *database)
    assert missing.code == 2
    assert "there is no database" in missing.err
    assert not file.exists()
    file.touch()
    plan = tenure_json("migrate", "plan", *database)
    assert plan[0]["revision"] == "0001_kernel"
    assert {step["phase"] for step in plan} <= {"pre", "post"}
    applied = tenure_json("migrate", "apply", *database)["applied"]
    assert applied == [step["revision"] for step in plan if step["phase"] == "pre"]
    assert tenure_json("migrate", "plan", *database) == [
        step for step in plan if step["phase"] == "post"
    ]
    assert "up to date" in tenure("migrate", "apply", *database).out


def test_a_database_that_cannot_be_is_refused():
    done = tenure("migrate", "apply", "--database-url", "mysql://x/y")
    assert done.code == 2
    assert "--database-url" in done.err
