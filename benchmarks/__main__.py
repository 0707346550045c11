"""Everything that is measured here; one benchmark so far."""

from benchmarks.http_client import main

if __name__ == "__main__":
    main()
