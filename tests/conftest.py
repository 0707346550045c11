"""What every test shares: Hypothesis profiles, the time factor, the report header."""

import os
from collections.abc import Iterator

import pytest
import structlog
from blockbuster import blockbuster_ctx
from hypothesis import HealthCheck, Phase, settings

from tenure.config import Settings
from tenure.limits import Durations

pytest_plugins = ["tests.databases"]

# "ci" repeats itself, so a red run can be looked at; "lab" searches for new failures.
settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=100,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "lab",
    deadline=None,
    max_examples=5_000,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# "ablation" only asks whether a failure is found, not for its shortest form.
settings.register_profile(
    "ablation",
    parent=settings.get_profile("ci"),
    phases=(Phase.explicit, Phase.generate),
    database=None,
    report_multiple_bugs=False,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Every test must pass both ways: `just plain` runs them without born claims.
if os.environ.get("TENURE_BORN_CLAIMED") == "off":
    Settings.model_fields["born_claimed"].default = False
    Settings.model_rebuild(force=True)

# What a log line and opening a connection do: write to stderr, look at a path.
NEVER_LONG = frozenset({"os.getcwd", "os.stat", "io.TextIOWrapper.write"})
# Connecting reads the files that a URL names: passwords and certificates.
ASYNCPG_READS = frozenset({"_parse_connect_dsn_and_args", "_read_password_from_pgpass"})


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what it takes to repeat this run: `-q` hides the header that would."""
    seed: object = config.getoption("randomly_seed", default="none")
    terminalreporter.write_line(
        f"repeat with --randomly-seed={seed}; "
        f"durations divided by {Durations.from_environment().factor:g}; "
        f"hypothesis profile {settings.get_current_profile_name()}"
    )


@pytest.fixture(scope="session", autouse=True)
def nothing_of_ours_blocks_the_loop() -> Iterator[None]:
    """Fail whatever in `tenure` makes a blocking call on an event loop's thread."""
    with blockbuster_ctx("tenure") as guard:
        for name, function in guard.functions.items():
            if name.startswith("os.path.") or name in NEVER_LONG:
                function.deactivate()
            else:
                function.can_block_in("asyncpg/connect_utils.py", ASYNCPG_READS)
                function.can_block_in("calendar/zones.py", {"zone_of"})
        yield


@pytest.fixture(autouse=True)
def no_test_configures_logs_for_another() -> Iterator[None]:
    """Take back what a test made of structlog, which is one for the process."""
    yield
    if structlog.is_configured():
        structlog.reset_defaults()
