"""Whatever was accepted happens, one owner at a time, and anyone can see why not yet.

Tenure stores side effects (webhooks, jobs, flows, notices) as rows of one SQL database
and makes them happen. This module is the promised surface: names that are not in
``__all__`` may change in any release.
"""

__all__ = ["__version__"]

__version__ = "0.1.0.dev0"
