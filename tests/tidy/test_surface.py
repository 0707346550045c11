import tenure

# What users may rely on. A name that leaves this list breaks somebody; a name that
# joins it is a promise. Both belong into the changelog.
SURFACE = (
    "Degraded",
    "Due",
    "Engine",
    "Received",
    "Retry",
    "Skipped",
    "Snooze",
    "Stop",
    "__version__",
    "current_run",
    "job",
    "on",
    "package",
    "reminder",
    "submit",
    "submit_async",
)


def test_the_public_surface_is_what_was_promised():
    assert tuple(sorted(tenure.__all__)) == tuple(sorted(SURFACE))


def test_every_promised_name_exists():
    assert [name for name in tenure.__all__ if not hasattr(tenure, name)] == []
