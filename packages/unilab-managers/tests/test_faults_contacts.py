"""An impact between two policy steps, as terms see it."""

from collections.abc import Mapping

import torch
from manager_support import base_cfg, calls, layout_of, zeros

from unilab_managers import ManagerBasedRlEnv, MetricsTermCfg, TerminationTermCfg
from unisim import Declared, SimCfg
from unisim.testing import FakeBackend

SECOND_SUBSTEP_OF_STEP_3 = 4 * 2 + 2


def force(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns the force after each substep, (N, 4) N."""
    return env.scene.sensor_history("probe")[:, :, 0]


def noted_force(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns the same, and notes it."""
    calls.append(force(env).tolist())
    return force(env)


def hit(env: ManagerBasedRlEnv, limit: float) -> torch.Tensor:
    return (force(env) > limit).any(dim=1)


def impact(number: int, state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """50 N in row 1 for one substep, 2 N in row 0 all the time."""
    shown = torch.zeros(2, 3, dtype=torch.float64)
    shown[0] = 2.0
    shown[1] = 50.0 if number == SECOND_SUBSTEP_OF_STEP_3 else 0.0
    return {"sensor:probe": shown}


def test_qa_062_an_impact_of_one_substep_ends_the_episode_and_is_gone_after_the_reset() -> None:
    cfg = base_cfg(
        sim=SimCfg(timestep=0.005),
        decimation=4,
        terminations={"hit": TerminationTermCfg(func=hit, params={"limit": 10.0})},
        metrics={"force": MetricsTermCfg(func=noted_force, reduce="max")},
    )
    declared = Declared(substep_sensors=("probe",), decimation=4)
    backend = FakeBackend(layout_of(timestep=0.005), 2, script=impact, declared=declared)
    with ManagerBasedRlEnv(cfg, backend=backend) as env:
        env.reset()
        calls.clear()
        ended = [env.step(zeros(env)).terminated.tolist() for _ in range(3)]
        assert ended == [[False, False], [False, False], [False, True]]
        steady = [2.0, 2.0, 2.0, 2.0]
        nothing = [0.0, 0.0, 0.0, 0.0]
        assert calls == [[steady, nothing], [steady, nothing], [steady, [0.0, 50.0, 0.0, 0.0]]]
        assert force(env).tolist() == [
            steady,
            nothing,
        ]  # the row that was hit begins an episode; the other goes on
        assert env.step(zeros(env)).terminated.tolist() == [False, False]
        assert calls[-1] == [steady, nothing]
