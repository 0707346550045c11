"""The kernel's state machine, replayed against each real database.

Every command goes to the kernel in memory and to the store; after each one all rows,
attempts and queues must be the same.
"""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tenure.store.backend import Backend
from tests.simulation.machine import WorkMachine
from tests.simulation.worlds import TwinWorld, World


@pytest.mark.timeout(600)
async def test_a_database_decides_as_the_kernel_does(backend: Backend) -> None:
    class TwinMachine(WorkMachine):
        def new_world(self) -> World:
            return TwinWorld(backend)

    lab = settings.get_current_profile_name() == "lab"
    rules = settings(max_examples=2_000 if lab else 25, stateful_step_count=40)
    await asyncio.to_thread(run_state_machine_as_test, TwinMachine, settings=rules)
