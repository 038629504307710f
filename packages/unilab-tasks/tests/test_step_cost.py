"""What a step of `velocity-flat-quadruped` costs beside its terms: torch operators, and no memory that grows."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
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
SERVING = (
    "unilab_core.entity_data",
    "unilab_core.kept_reads",
    "unilab_core.reads",
    "unilab_core.contacts",
)
"""Where values of the state are read, derived and converted for a body; what is written is staged elsewhere."""
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
    """Counts the operators of a block, views included, by whose they are. There are two countings.

    Strictly, an operator belongs to the innermost function of this project that calls it, `HELPERS` aside: what a term
    asks of others, such as a velocity in the robot's frame, is theirs, and only what the term's own function does is
    its body.

    By the second counting, an operator that serves a body is its own arithmetic too: one that reads or derives a value
    of the state which the body asked for, or that converts a value which the body gives to be written. That is an
    operator of a function of `SERVING` between which and the body there is no function of this project but those of
    `SERVING` and `HELPERS`. All others are machinery, whoever they are made on account of: a write's rows and state are
    staged, packed, checked, committed and read back by other modules, also where a body called them; so are timers,
    masks, draws from the environment's generator, noise, history and verdicts.

    Attributes:
        bodies: How many belong to bodies of terms.
        others: How many belong to everything else, strictly, by phase of the step and place in the code.
        serving: How many of the others serve a body, by the same.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bodies = 0
        self.others: Counter[tuple[str, str]] = Counter()
        self.serving: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        callers, phase = [], "between phases"
        frame = sys._getframe(1)
        while frame is not None:
            module = str(frame.f_globals.get("__name__", ""))
            if module.startswith(("unilab_", "unisim")) and module not in HELPERS:
                callers.append((module, f"{module}.{frame.f_code.co_qualname}:{frame.f_lineno}"))
                phase = PHASES.get(frame.f_code.co_name, phase) if phase == "between phases" else phase
            frame = frame.f_back
        owner, place = callers[0] if callers else ("", "outside")
        if owner.startswith(TERM_BODIES):
            self.bodies += 1
        else:
            key = phase, f"{place} {func.__name__}"
            self.others[key] += 1
            asking = next((module for module, _ in callers if module not in SERVING), "")
            if owner in SERVING and asking.startswith(TERM_BODIES):
                self.serving[key] += 1
        return func(*args, **(kwargs or {}))

    @property
    def strict(self) -> int:
        """How many are outside bodies by the strict counting."""
        return self.others.total()

    @property
    def machinery(self) -> int:
        """How many are outside bodies by the second counting."""
        return self.others.total() - self.serving.total()

    def by_phase(self) -> str:
        phases: Counter[str] = Counter()
        for (phase, _), count in self.others.items():
            phases[phase] += count
        return ", ".join(f"{phase} {count}" for phase, count in phases.most_common())

    def report(self) -> str:
        """Returns the totals by both countings and every place, most expensive first."""
        lines = [
            f"{self.strict} outside bodies of terms, {self.machinery} without the {self.serving.total()} that serve a "
            f"body; {self.bodies} inside",
            self.by_phase(),
        ]
        for (phase, place), count in self.others.most_common():
            serves = " (serves a body)" if self.serving[phase, place] else ""
            lines.append(f"{count:4}  {phase}: {place}{serves}")
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
    assert len({count.strict for count in counts}) == 1
    record_property("operators", counts[0].strict)
    record_property("operators without those that serve a body", counts[0].machinery)
    print(counts[0].report())
    assert counts[0].strict <= LIMIT, counts[0].report()
    assert counts[0].bodies >= 40  # else the bodies would not be told apart


PUSH = {"events.push.interval_range_s": (0.04, 0.06)}
REDRAW = {"commands.twist.resampling_time_range": (0.04, 0.06)}
"""Timers of two or three steps: from the second step on, some rows are due in each, and some are not."""
CASES = {"command redraw": REDRAW, "push": PUSH, "push and command redraw": PUSH | REDRAW}


def _is_due_for_some(steps_left: torch.Tensor) -> bool:
    due = steps_left <= 1
    return bool(due.any()) and not bool(due.all())


def _busy_steps(num_envs: int, overrides: Mapping[str, object]) -> list[OperatorCount]:
    """Returns the counts of three steps in which the timers that `overrides` names run out for some rows only.

    The first of them also makes the views that later ones find.
    """
    counts = []
    with _make(num_envs, overrides) as env:
        actions = torch.zeros(num_envs, env.num_actions)
        pushes, redraws = PUSH.items() <= overrides.items(), REDRAW.items() <= overrides.items()
        env.step(actions)
        for _ in range(3):
            assert _is_due_for_some(env.event_manager.steps_left("push")) == pushes
            assert _is_due_for_some(env.command_manager.get_term("twist").steps_left) == redraws
            before = env.transfer_stats
            counts.append(_counted(lambda: env.step(actions)))
            assert env.transfer_stats.write.transfers - before.write.transfers == pushes
            assert env.transfer_stats.selected_read.transfers - before.selected_read.transfers == pushes
    return counts


@pytest.mark.parametrize("case", CASES)
def test_a_step_with_events_or_new_commands_uses_at_most_110_operators_of_machinery(
    case: str, record_property: Callable[[str, object], None]
):
    counts = _busy_steps(64, CASES[case])
    record_property("operators", [count.strict for count in counts])
    record_property("operators without those that serve a body", [count.machinery for count in counts])
    print(counts[0].report())
    for count in counts:
        assert count.machinery <= LIMIT, f"{case}: {count.report()}"
        assert count.bodies >= 40


def test_what_is_staged_packed_checked_committed_and_read_back_for_a_push_is_machinery():
    count = _busy_steps(64, PUSH)[0]
    modules = {key[1].partition(":")[0] for key in (count.others - count.serving)}
    for whose in (
        "unilab_core.staging.Staging.check_rows",
        "unilab_core.staging.Staging.write",
        "unilab_core.staging.Staging.step_payload",
        "unilab_core.rng.EnvRng.uniform",
        "unisim.transfer.HostBridgeTransferPlan._rows_to_host",
        "unisim.transfer.HostBridgeTransferPlan.read_selected",
        "unisim.checked.CheckedBackend._check_rows",
        "unisim.reset._check_values",
        "unisim.backends.mujoco.backend.MuJoCoBackend._commit_write",
    ):
        assert whose in modules
    serving = {key[1].partition(":")[0] for key in count.serving}
    assert "unilab_core.entity_data.EntityData.write_root_velocity" in serving  # into the root's own frame
    assert all(name.startswith(SERVING) for name in serving)


@pytest.mark.parametrize("overrides", [{}, PUSH | REDRAW], ids=["quiet", "push and command redraw"])
def test_the_number_of_operators_does_not_depend_on_the_number_of_rows(overrides: Mapping[str, object]):
    totals = set()
    for rows in (16, 64, 256) if overrides else (1, 16, 64):
        if overrides:
            totals |= {(count.strict, count.bodies) for count in _busy_steps(rows, overrides)[1:]}
            continue
        with _make(rows) as env:
            actions = torch.zeros(rows, env.num_actions)
            env.step(actions)
            count = _counted(lambda env=env, actions=actions: env.step(actions))
            totals.add((count.strict, count.bodies))
    assert len(totals) == 1


def test_operators_in_a_term_are_told_from_those_that_the_environment_makes_for_it():
    with _make(2) as env:
        data = env.scene["robot"].data
        gravity = env.termination_manager.recordable_calls()[1][1]  # whether it is tilted too far
        env.step(torch.zeros(2, env.num_actions))
        with OperatorCount() as count:
            env.reward_manager.recordable_calls()[0][1]()
        assert count.bodies > 0
        with OperatorCount() as count:
            _ = data.root_quat_w.clone()
        assert count.bodies == 0
        env.load_state_dict(env.state_dict())  # nothing of what was derived is kept
        with OperatorCount() as count:
            _ = data.projected_gravity_b
        assert count.strict == count.machinery > 0  # no body asked
        env.load_state_dict(env.state_dict())
        with OperatorCount() as asked:
            gravity()
        assert asked.bodies > 0
        assert asked.strict == asked.serving.total() == count.strict


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
