"""What `unilab bench` shows of a learner: its policy, its collecting, its update."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from unilab_core.benching.instruments import PhaseClock, timed, waiter
from unilab_core.benching.parts import BenchPart, LearnerCost, Phase
from unilab_rl.contracts.algorithm import Iteration, Learner
from unilab_rl.registry import get_algorithm
from unilab_rl.runtime.session import task_learner_cfg

if TYPE_CHECKING:
    from unilab_core import TorchEnv
    from unilab_core.registry import TaskSpec

__all__ = ["LearnerBench"]

_ITERATIONS = 2
_POLICY_CALLS = 20


class LearnerBench(BenchPart):
    """Measures any learner of the registry."""

    def learner(
        self,
        env: TorchEnv,
        task: TaskSpec,
        algorithm: str | None,
        overrides: Mapping[str, Any],
        *,
        seed: int,
    ) -> LearnerCost | None:
        """Returns the mean of two iterations after a first one that is not counted; see `BenchPart`."""
        if algorithm is None and not task.learners:
            return None
        found = get_algorithm(algorithm or task.default_learner)
        cfg = task_learner_cfg(task.name, task.learners, found, overrides)
        found.require()
        learner = found.make_learner(env, cfg, seed=seed)
        clock, done = PhaseClock(waiter(env.device)), list[Iteration]()
        with closing(learner):
            learner.iterate()
            with timed([Phase("step", env, ("step",))], clock):
                for _ in range(_ITERATIONS):
                    done.append(learner.iterate())
            policy_us = _policy_us(env, learner)
        steps = clock.calls["step"]
        collect_us = 1e6 * sum(iteration.collect_s for iteration in done) / steps
        learn_us = 1e6 * sum(iteration.learn_s for iteration in done) / steps
        return LearnerCost(
            algorithm=found.name,
            steps_per_iteration=steps // _ITERATIONS,
            policy_us=policy_us,
            collect_us=collect_us - clock.ns["step"] / steps / 1e3,
            learn_us=learn_us,
            env_steps_per_s=mean(i.env_steps / (i.collect_s + i.learn_s) for i in done),
        )


def _policy_us(env: TorchEnv, learner: Learner) -> float:
    """Returns the median of the deterministic policy on the present observations of all rows, µs."""
    policy, obs, wait = learner.policy(), env.observations(), waiter(env.device)
    times = []
    for _ in range(_POLICY_CALLS):
        wait()
        began = time.perf_counter()
        policy(obs)
        wait()
        times.append(1e6 * (time.perf_counter() - began))
    return median(times)
