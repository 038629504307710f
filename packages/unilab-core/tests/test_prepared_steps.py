"""A resident backend is told what a control step is made of before the first one, so that it can make it ready."""

from __future__ import annotations

import pytest
from core_support import ScriptedCfg, ScriptedEnv, steps

from unisim import TensorExecution
from unisim.testing import FakeBackend, make_layout

N, SUBSTEPS = 3, 4


class NotingBackend(FakeBackend):
    """Notes what is prepared and what is stepped, in order."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.calls = []

    def prepare_step(self, nsteps):
        super().prepare_step(nsteps)
        self.calls.append(("prepare", nsteps))

    def step_tensor(self, ctrl, nsteps=1):
        super().step_tensor(ctrl, nsteps)
        self.calls.append(("step", nsteps))


class FollowerEnv(ScriptedEnv):
    """A control that follows the state, so that a control step is made of single substeps."""

    def _following(self):
        return ("itself",)


@pytest.mark.parametrize(
    ("kind", "nsteps", "times"), [(ScriptedEnv, SUBSTEPS, 1), (FollowerEnv, 1, SUBSTEPS)]
)
def test_what_steps_are_made_of_is_prepared_in_the_construction(kind, nsteps, times):
    layout = make_layout(sensors={"imu": (3, "acceleration")}, sites=("robot/tip",))
    backend = NotingBackend(layout, N, execution=TensorExecution.DEVICE_RESIDENT)
    cfg = ScriptedCfg(num_envs=N, decimation=SUBSTEPS, episode_length_s=20.0)
    with kind(N, backend=backend, cfg=cfg) as env:
        assert backend.calls == [("prepare", nsteps)]
        env.reset()
        steps(env, 2)
        assert backend.calls == [("prepare", nsteps)] + [("step", nsteps)] * 2 * times
