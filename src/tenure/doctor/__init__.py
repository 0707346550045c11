"""Doctor: looks at a live database for anything that an invariant forbids.

`examine` reads everything in bounded pages, looks again at what seems wrong before it
calls it a fault, and mends what is safe to mend by the kernel's own verbs.
"""

from tenure.doctor.examining import CHECKS, estimate, examine, examine_snapshot
from tenure.doctor.model import About, Finding, Grade, Progress, Report

__all__ = [
    "CHECKS",
    "About",
    "Finding",
    "Grade",
    "Progress",
    "Report",
    "estimate",
    "examine",
    "examine_snapshot",
]
