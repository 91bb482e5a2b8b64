import numpy as np
import pytest
from diffusers.schedulers import MiniMaxH3Scheduler

from conftest import tool


@pytest.mark.parametrize("shift", [12.0, 3.0, 1.0, 2.5, 0.3, 7.1, 4000.0])
def test_every_grid_is_that_of_diffusers(shift):
    for steps in [*range(1, 60), 99, 100, 137, 200]:
        scheduler = MiniMaxH3Scheduler(shift=shift)
        scheduler.set_timesteps(steps + 1)  # diffusers counts grid points
        got = tool("schedule", steps, repr(shift))
        assert np.array_equal(np.float32(got["sigmas"]), scheduler.sigmas.numpy()), (steps, shift)
        assert np.array_equal(np.float32(got["timesteps"]), scheduler.timesteps.numpy()), (steps, shift)
