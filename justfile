# The verbs of this checkout. `uv run just` lists them; `uv run just test` needs nothing
# but Python 3.11 and uv.

set shell := ["bash", "-euo", "pipefail", "-c"]
set positional-arguments

export PATH := justfile_directory() / ".venv" / "bin" + ":" + env("PATH")

# List the verbs.
[private]
default:
    @just --list --unsorted

# Make or refresh the virtual environment at the pinned versions.
setup:
    uv sync

# Format everything and apply the fixes that are safe.
fmt:
    ruff format
    ruff check --fix --quiet
    just --fmt --unstable

# Refuse what is not formatted or breaks a rule.
lint:
    ruff format --check
    ruff check

# Check the types of the source and of the tests.
types:
    basedpyright

# Check that imports point down only.
imports:
    lint-imports --no-logo

# Check that every installed package is pinned at its installed version.
pins:
    pytest -q -p no:randomly tests/tidy/test_pins.py

# Run the ordinary tests in random order, on both cores.
test *args:
    pytest -q -n 2 --dist worksteal "$@"

# The store's own SQL on PostgreSQL 15, where Debian's is installed.
oldest *args:
    #!/usr/bin/env bash
    set -euo pipefail
    if [ ! -x /usr/lib/postgresql/15/bin/postgres ]; then
        echo "skipped: PostgreSQL 15 is not installed in /usr/lib/postgresql/15"
        exit 0
    fi
    TENURE_TEST_POSTGRES_VERSION=15 pytest -q -n 2 --dist worksteal \
        -k "postgres or not sqlite" tests/store/claims tests/store/backends \
        tests/store/test_migrating.py tests/store/test_claims.py tests/simulation "$@"

# The tests of whoever accepts and sends once more, with nothing born claimed.
plain *args:
    TENURE_BORN_CLAIMED=off pytest -q -n 2 --dist worksteal \
        tests/test_engine.py tests/outbox/test_acceptor.py \
        tests/cases/test_accepting.py tests/cases/test_delivery.py "$@"

# Kill, stop, cut off and upgrade real processes under traffic; print what was counted.
# CI runs the part that is not marked long.
crash *args:
    pytest -q -s -m crash tests/crash tests/upgrade "$@"

# The crash lab in full: 20,000 messages to 3 endpoints on each database. Takes long.
lab *args:
    tenure lab --database postgresql --messages 20000 "$@"
    tenure lab --database sqlite --messages 20000 "$@"

# Simulate many seeds of the whole machine, looking for new failures.
sim *args:
    HYPOTHESIS_PROFILE=lab pytest -q -m "simulation or not simulation" tests/simulation "$@"

# Take one guard out of a copy of the source at a time and name the tests that go red.
ablate *args:
    pytest -q -s -m ablation tests/ablation "$@"

# Measure in an environment that also has the peers; `just bench --help` says what.
bench *args:
    UV_PROJECT_ENVIRONMENT="${TENURE_BENCH_ENVIRONMENT:-.venv-bench}" \
        uv run --group bench python -m benchmarks "$@"

# Write the reference pages that are made from the source.
docs:
    python -m docs.generate

# Resolve everything afresh and write the exact pins into pyproject.toml.
lock:
    #!/usr/bin/env python3
    import pathlib, re, subprocess

    project = pathlib.Path("pyproject.toml")

    def compiled(*args: str, given: str | None = None) -> list[str]:
        command = ["uv", "pip", "compile", "--universal", "--python-version", "3.11"]
        command += ["--no-header", "--no-annotate", "--quiet", *args]
        done = subprocess.run(command, input=given, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        return [line for line in done.stdout.splitlines() if line.strip()]

    def write(key: str, pins: list[str]) -> None:
        lines = "".join(f'  "{pin}",\n' for pin in pins)
        text = project.read_text()
        pattern = rf"(?ms)^{key} = \[\n.*?^\]"
        assert len(re.findall(pattern, text)) == 1, key
        project.write_text(re.sub(pattern, lambda _: f"{key} = [\n{lines}]", text))

    before = project.read_text()
    try:
        # What is pinned now must not constrain the fresh resolve.
        write("constraint-dependencies", [])
        write("build-constraint-dependencies", [])
        built = compiled("-", given="hatchling\nsetuptools\n")
        pinned = compiled("pyproject.toml", "--group", "dev", "--group", "bench")
    except BaseException:
        project.write_text(before)
        raise
    write("constraint-dependencies", pinned)
    write("build-constraint-dependencies", built)
    subprocess.run(["uv", "sync"], check=True)

# Everything that has to pass before a change lands; every step runs, whatever fails.
ci:
    #!/usr/bin/env bash
    set -uo pipefail
    failed=()
    for step in lint types imports pins test plain oldest crash ablate; do
        printf '\n=== %s\n' "$step"
        start=$SECONDS
        case "$step" in
            crash) just crash -m "crash and not long" || failed+=(crash) ;;
            *) just "$step" || failed+=("$step") ;;
        esac
        printf -- '--- %s: %s s\n' "$step" "$((SECONDS - start))"
    done
    if [ "${#failed[@]}" -gt 0 ]; then
        printf '\nfailed: %s\n' "${failed[*]}"
        exit 1
    fi
    printf '\nall steps passed\n'
