"""The state machine over the kernel alone."""

from __future__ import annotations

from hypothesis import settings

from tests.simulation.machine import WorkMachine
from tests.simulation.worlds import MemoryWorld, World


class KernelMachine(WorkMachine):
    """The rules over dictionaries."""

    def new_world(self) -> World:
        return MemoryWorld()


TestKernel = KernelMachine.TestCase
TestKernel.settings = settings(
    max_examples=20_000 if settings.get_current_profile_name() == "lab" else 150,
    stateful_step_count=50,
)
