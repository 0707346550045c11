"""The process that evaluates what may take long; run by its path, not imported.

It reads requests and writes answers, each four bytes of length and JSON. It knows
nothing of Tenure, so that it starts in a moment and can be killed at any. The system
bounds its memory, and ends it when one request has used its argument's seconds of a
processor: that also holds where nobody waits for it.
"""

import json
import resource
import signal
import sys

import cel

LIMIT = 1 << 30  # bytes of address space


def main() -> None:
    """Answer until the other side goes away."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    seconds = float(sys.argv[1])
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while len(head := source.read(4)) == 4:
        text, facts = json.loads(source.read(int.from_bytes(head, "big")))
        signal.setitimer(signal.ITIMER_PROF, seconds)  # nobody handles it: it kills
        answer = json.dumps(answered(text, facts)).encode()
        signal.setitimer(signal.ITIMER_PROF, 0)
        sink.write(len(answer).to_bytes(4, "big") + answer)
        sink.flush()


def answered(text: str, facts: dict[str, object]) -> list[object]:
    """Return [value, None], or [None, why there is none]."""
    try:
        value = cel.compile(text).execute(facts)
        json.dumps(value, allow_nan=False)
    except KeyError as error:
        return [None, f"no such key {error}"]
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is the answer
        return [None, str(error) or type(error).__name__]
    return [value, None]


if __name__ == "__main__":
    main()
