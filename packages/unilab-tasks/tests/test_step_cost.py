"""What a step of `velocity-flat-quadruped` costs beside its terms: torch operators, and no memory that grows."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from unilab_core import TorchEnvState, make_env
from unilab_managers import ManagerBasedRlEnv

TASK = "velocity-flat-quadruped"
LIMIT = 110
TERM_BODIES = ("unilab_managers.mdp.", "unilab_tasks.")
"""Modules whose functions are bodies of terms."""
HELPERS = ("unilab_core.rotation",)
"""Arithmetic on behalf of whoever calls it."""
PHASES = {
    "_judge_before_physics": "verdict before physics",
    "step_tensor": "physics",
    "write_control": "control packet",
    "read": "read packet",
    "_terminations": "terminations",
    "_rewards": "rewards",
    "_advance_and_flush": "events and commands",
    "_write_observations": "observations",
    "_judge": "verdict after observations",
}


class OperatorCount(TorchDispatchMode):
    """Counts the operators of a block, views included, by whose they are.

    An operator belongs to the innermost function of this project that calls it. What a term asks of others, such as a
    velocity in the robot's frame, is theirs: only what the term's own function does is its body.

    Attributes:
        bodies: How many belong to bodies of terms.
        others: How many belong to everything else, by phase of the step and place in the code.
        asked: How many of the others a body asks for, by reading what is derived from the state.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bodies = self.asked = 0
        self.others: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        owner = place = phase = None
        asked = False
        frame = sys._getframe(1)
        while frame is not None:
            module = str(frame.f_globals.get("__name__", ""))
            if module.startswith(("unilab_", "unisim")) and module not in HELPERS:
                if owner is None:
                    owner, place = module, f"{module}.{frame.f_code.co_qualname}:{frame.f_lineno}"
                asked = asked or module.startswith(TERM_BODIES)
                phase = phase or PHASES.get(frame.f_code.co_name)
            frame = frame.f_back
        if owner is not None and owner.startswith(TERM_BODIES):
            self.bodies += 1
        else:
            self.asked += asked
            self.others[phase or "between phases", f"{place} {func.__name__}"] += 1
        return func(*args, **(kwargs or {}))

    def by_phase(self) -> str:
        phases: Counter[str] = Counter()
        for (phase, _), count in self.others.items():
            phases[phase] += count
        return ", ".join(f"{phase} {count}" for phase, count in phases.most_common())

    def report(self) -> str:
        """Returns the totals and every place, most expensive first."""
        outside = f"{self.others.total()} outside bodies of terms ({self.asked} of them asked for by a body)"
        lines = [f"{outside}, {self.bodies} inside", self.by_phase()]
        lines += [f"{count:4}  {phase}: {place}" for (phase, place), count in self.others.most_common()]
        return "\n".join(lines)


def _make(num_envs: int, overrides: Mapping[str, object] | None = None) -> ManagerBasedRlEnv:
    env = make_env(TASK, num_envs=num_envs, seed=0, overrides=overrides or {})
    assert isinstance(env, ManagerBasedRlEnv)
    env.reset()
    return env


def _counted(step: Callable[[], TorchEnvState]) -> OperatorCount:
    with OperatorCount() as count:
        state = step()
    assert state.final_observation is None, "a row was reset within the step that is counted"
    return count


def test_a_whole_step_uses_at_most_110_operators_outside_bodies_of_terms(
    record_property: Callable[[str, object], None],
):
    with _make(16) as env:
        actions = torch.zeros(16, env.num_actions)
        env.step(actions)  # the first one judges the reset's observations too
        written = env.transfer_stats.write.transfers
        counts = [_counted(lambda: env.step(actions)) for _ in range(5)]
        assert env.transfer_stats.write.transfers == written
    assert len({count.others.total() for count in counts}) == 1
    record_property("operators", counts[0].others.total())
    print(counts[0].report())
    assert counts[0].others.total() <= LIMIT, counts[0].report()
    assert counts[0].bodies >= 40  # else the bodies would not be told apart


def test_the_number_of_operators_does_not_depend_on_the_number_of_rows():
    totals = []
    for rows in (1, 16, 64):
        with _make(rows) as env:
            actions = torch.zeros(rows, env.num_actions)
            env.step(actions)
            totals.append(_counted(lambda env=env, actions=actions: env.step(actions)).others.total())
    assert len(set(totals)) == 1


def test_operators_in_a_term_are_told_from_those_that_the_environment_makes_for_it():
    with _make(2) as env:
        data = env.scene["robot"].data
        with OperatorCount() as count:
            env.reward_manager.recordable_calls()[0][1]()
        assert count.bodies > 0
        with OperatorCount() as count:
            _ = data.root_quat_w.clone()
        assert count.bodies == 0


# ---------------------------------------------------------------- memory


def _storages() -> dict[int, int]:
    """Returns the bytes of every live CPU storage that Python can reach, by address."""
    # By `type`: `isinstance` asks the object itself, and some of torch's own answer with a warning.
    tensors = [item for item in gc.get_objects() if issubclass(type(item), torch.Tensor)]
    return {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}


def _collect() -> None:
    gc.collect()
    sys._clear_type_cache()  # it keeps names alive that attributes were last looked up by


def _live() -> tuple[int, int, int]:
    """Returns how much is alive: blocks of Python's allocator, and number and bytes of tensors' storages."""
    _collect()
    storages = _storages()
    return sys.getallocatedblocks(), len(storages), sum(storages.values())


def _peak(env: ManagerBasedRlEnv, steps: int) -> int:
    """Returns the most bytes that Python holds at any time within the steps, beyond what it held before them.

    Garbage is collected after every step: when it would be otherwise depends on what was allocated long before.
    """
    _collect()
    gc.freeze()  # what was there before need not be looked at again in every collection
    tracemalloc.start()
    try:
        for _ in range(steps):
            _run(env, 1)
            gc.collect()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.unfreeze()


def _run(env: ManagerBasedRlEnv, steps: int) -> None:
    actions = torch.zeros(env.num_envs, env.num_actions)
    for _ in range(steps):
        env.step(actions)


def test_after_1000_steps_memory_and_its_peak_are_what_they_were_after_100():
    # Timers that run out together every few steps, so that any 100 steps hold resets, pushes and new commands.
    often = {
        "episode_length_s": 0.5,
        "events.push.interval_range_s": (0.2, 0.2),
        "commands.twist.resampling_time_range": (0.2, 0.2),
    }
    with _make(2, often) as env:
        _run(env, 25)
        first_peak = _peak(env, 75)
        first = _live()
        _run(env, 800)
        last_peak = _peak(env, 100)
        last = _live()
    assert last[1:] == first[1:]
    assert abs(last[0] - first[0]) < 100  # a leak of one object per step would be 900
    # A leaked row of the smallest buffer would be 9 kB in 900 steps.
    assert last_peak <= first_peak + 8192


def test_a_leak_of_one_small_tensor_per_step_is_found():
    kept: list[torch.Tensor] = []
    with _make(2) as env:
        _run(env, 5)
        first = _live()
        for _ in range(100):
            _run(env, 1)
            kept.append(torch.zeros(2))
        last = _live()
    assert last[1] - first[1] == len(kept)
    assert last[0] - first[0] > 100
