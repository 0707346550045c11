"""Signed samples: what `tenure trigger` sends, for every preset."""

from tenure.inbox.samples.bodies import EVENTS
from tenure.inbox.samples.signing import Sample, new_secret, sample

__all__ = ["EVENTS", "Sample", "new_secret", "sample"]
