"""What a step of `velocity-flat-quadruped` costs beside its terms: torch operators."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from unilab_core import TorchEnvState, load_env_cfg, make_env
from unilab_managers import EventTermCfg, ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from unilab_managers.declarations import declared_by
from unilab_managers.mdp import events
from unisim import make_backend
from unisim.transfer import HostBridgeTransferPlan

TASK = "velocity-flat-quadruped"
LIMIT = 110
TERM_BODIES = ("unilab_managers.mdp.", "unilab_tasks.")
"""Modules whose functions are bodies of terms, `NO_BODIES` aside."""
NO_BODIES = (
    "unilab_managers.mdp._sampling",
    "unilab_managers.mdp.action_history",
    "unilab_managers.mdp.feet",
)
"""How event terms draw, and what the environment tracks, which several terms share."""
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

    An operator belongs to the innermost function of this project that calls it, `HELPERS` aside: what a term asks of
    others, such as a velocity in the robot's frame, is theirs, and only what is done in the modules of terms is a body:
    by the term's own function, or by one that it is split into.

    Attributes:
        bodies: How many belong to bodies of terms.
        others: How many belong to everything else, by phase of the step and place in the code.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bodies = 0
        self.others: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        owner, place, phase = "", "outside", "between phases"
        frame = sys._getframe(1)
        while frame is not None:
            module = str(frame.f_globals.get("__name__", ""))
            if module.startswith(("unilab_", "unisim")) and module not in HELPERS:
                if not owner:
                    owner, place = module, f"{module}.{frame.f_code.co_qualname}:{frame.f_lineno}"
                phase = PHASES.get(frame.f_code.co_name, phase) if phase == "between phases" else phase
            frame = frame.f_back
        if owner.startswith(TERM_BODIES) and owner not in NO_BODIES:
            self.bodies += 1
        else:
            self.others[phase, f"{place} {func.__name__}"] += 1
        return func(*args, **(kwargs or {}))

    @property
    def total(self) -> int:
        """How many are outside bodies."""
        return self.others.total()

    def report(self) -> str:
        """Returns the totals and every place, most expensive first."""
        phases: Counter[str] = Counter()
        for (phase, _), count in self.others.items():
            phases[phase] += count
        lines = [
            f"{self.total} outside bodies of terms, {self.bodies} inside",
            ", ".join(f"{phase} {count}" for phase, count in phases.most_common()),
        ]
        lines += [f"{count:4}  {phase}: {place}" for (phase, place), count in self.others.most_common()]
        return "\n".join(lines)

    def check(self, bound: int, record: Callable[[str, object], None]) -> None:
        """Records, prints and checks how many are outside bodies."""
        record("operators", self.total)
        print(self.report())
        assert self.total <= bound, self.report()
        assert self.bodies >= 40  # else the bodies would not be told apart


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


PUSH = {"events.push.interval_range_s": (0.04, 0.06)}
REDRAW = {"commands.twist.resampling_time_range": (0.04, 0.06)}
"""Timers of two or three steps: from the second step on, some rows are due in each, and some are not."""
SOON = {"events.push.interval_range_s": (0.02, 0.04), "commands.twist.resampling_time_range": (0.02, 0.04)}
"""Timers of one or two steps: some rows are due in the first step, and some are not."""
CASES = {"quiet": {}, "command redraw": REDRAW, "push": PUSH, "push and command redraw": PUSH | REDRAW}


STEADY = {"quiet": 59, "command redraw": 67, "push": 90, "push and command redraw": 98}
FIRST = {"quiet": 74, "push and command redraw": 105}
AFTER_RESET = {"quiet": 61, "push and command redraw": 100}
"""The most operators outside of bodies: as they are now, to be lowered when a step gets cheaper."""


def test_every_bound_on_what_a_step_does_beside_its_terms_keeps_the_limit():
    assert all(bound <= LIMIT for kind in (STEADY, FIRST, AFTER_RESET, STAGED) for bound in kind.values())


def _is_due_for_some(steps_left: torch.Tensor) -> bool:
    due = steps_left <= 1
    return bool(due.any()) and not bool(due.all())


def _due(env: ManagerBasedRlEnv) -> tuple[bool, bool]:
    """Returns whether in the next step some rows are pushed, and get new commands; and some do not."""
    return (
        _is_due_for_some(env.event_manager.steps_left("push")),
        _is_due_for_some(env.command_manager.get_term("twist").steps_left),
    )


def _counted_with_writes(env: ManagerBasedRlEnv, actions: torch.Tensor, writes: int) -> OperatorCount:
    before = env.transfer_stats
    count = _counted(lambda: env.step(actions))
    assert env.transfer_stats.write.transfers - before.write.transfers == writes
    assert env.transfer_stats.selected_read.transfers - before.selected_read.transfers == writes
    return count


def _steady_steps(num_envs: int, overrides: Mapping[str, object]) -> list[OperatorCount]:
    """Returns the counts of three steps in which the timers that `overrides` names run out for some rows only.

    Two steps come before, the second of them such a step too: it makes the views that later ones find.
    """
    pushes, redraws = PUSH.items() <= overrides.items(), REDRAW.items() <= overrides.items()
    counts = []
    with _make(num_envs, overrides) as env:
        actions = torch.zeros(num_envs, env.num_actions)
        for _ in range(2):
            env.step(actions)
        for _ in range(3):
            assert _due(env) == (pushes, redraws)
            counts.append(_counted_with_writes(env, actions, int(pushes)))
    return counts


@pytest.mark.parametrize("case", CASES)
def test_a_step_uses_at_most_110_operators_outside_bodies_of_terms(
    case: str, record_property: Callable[[str, object], None]
):
    counts = _steady_steps(64, CASES[case])
    assert len({count.total for count in counts}) == 1
    for count in counts:
        count.check(STEADY[case], record_property)


@pytest.mark.parametrize(("case", "overrides"), [("quiet", {}), ("push and command redraw", SOON)])
def test_the_first_step_after_a_reset_is_counted_too(
    case: str, overrides: Mapping[str, object], record_property: Callable[[str, object], None]
):
    with _make(64, overrides) as env:
        assert _due(env) == (bool(overrides), bool(overrides))
        count = _counted_with_writes(env, torch.zeros(64, env.num_actions), bool(overrides))
    count.check(FIRST[case], record_property)


@pytest.mark.parametrize("case", AFTER_RESET)
def test_a_step_after_one_in_which_rows_were_reset_is_counted_too(
    case: str, record_property: Callable[[str, object], None]
):
    with _make(64, CASES[case]) as env:
        actions = torch.zeros(64, env.num_actions)
        for _ in range(3):
            env.step(actions)
        ages = env.episode_length.clone()
        ages[5:9] = env.max_episode_length - 1
        env.episode_length = ages
        assert int(env.step(actions).truncated.sum()) == 4
        busy = bool(CASES[case])
        assert _due(env) == (busy, busy)
        count = _counted_with_writes(env, actions, busy)
    count.check(AFTER_RESET[case], record_property)


@pytest.fixture
def staged_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packets whose host and device sides lie apart, as those of a CUDA target do, but both in host memory."""

    def apart(*args: Any, staged: bool | None = None, **named: Any) -> HostBridgeTransferPlan:
        return HostBridgeTransferPlan(*args, staged=True, **named)

    monkeypatch.setattr("unisim.host_bridge.HostBridgeTransferPlan", apart)


STAGED = {"quiet": 61, "command redraw": 69, "push": 99, "push and command redraw": 107}
"""With packets that cross by a copy. A CUDA target does more than their layout shows on the CPU: it checks row ids by
operators, and makes the mask of a write again on the host."""


@pytest.mark.usefixtures("staged_packets")
@pytest.mark.parametrize("case", CASES)
def test_what_packets_in_the_layout_of_a_cuda_target_cost_when_emulated_on_the_cpu(
    case: str, record_property: Callable[[str, object], None]
):
    for count in _steady_steps(64, CASES[case]):
        count.check(STAGED[case], record_property)
        crossed = sum(n for (_, place), n in count.others.items() if "Packet.to_" in place)
        assert crossed == (4 if "push" in case else 2)


MOVED = 130
"""Above the limit, which is that of the task: it has no such event."""


def test_what_a_step_costs_in_which_an_event_writes_pose_velocity_and_joints(
    record_property: Callable[[str, object], None],
):
    cfg = load_env_cfg(TASK, num_envs=64)
    assert isinstance(cfg, ManagerBasedRlEnvCfg)
    move = EventTermCfg(func=events.reset_to_default, mode="step")
    cfg = cfg.model_copy(update={"events": {**cfg.events, "move": move}})
    backend = make_backend("mujoco", cfg.scene, cfg.sim, num_envs=64, declared=declared_by(cfg))
    with ManagerBasedRlEnv(cfg, backend=backend, seed=0) as env:
        env.reset()
        actions = torch.zeros(64, env.num_actions)
        for _ in range(2):
            env.step(actions)
        count = _counted_with_writes(env, actions, 1)
        placed = env.scene["robot"].data
        assert torch.equal(placed.joint_pos, placed.default_joint_pos)
        assert torch.equal(placed.root_lin_vel_w, torch.zeros(64, 3))
    count.check(MOVED, record_property)


def test_what_is_staged_packed_checked_committed_and_read_back_for_a_push_is_counted():
    count = _steady_steps(64, PUSH)[0]
    modules = {place.partition(":")[0] for _, place in count.others}
    for whose in (
        "unilab_core.staging.Staging.check_rows",
        "unilab_core.staging.Staging.write",
        "unilab_core.staging.Staging.step_payload",
        "unilab_core.rng.EnvRng.uniform",
        "unisim.transfer.HostBridgeTransferPlan._rows_to_host",
        "unisim.transfer.HostBridgeTransferPlan.read_selected",
        "unisim.checked.CheckedBackend._check_rows",
        "unisim.reset.all_finite",
        "unisim.backends.mujoco.backend.MuJoCoBackend._commit_write",
    ):
        assert whose in modules


@pytest.mark.parametrize("overrides", [{}, PUSH | REDRAW], ids=["quiet", "push and command redraw"])
def test_the_number_of_operators_does_not_depend_on_the_number_of_rows(overrides: Mapping[str, object]):
    totals = set()
    for rows in (16, 64, 256) if overrides else (1, 16, 64):
        totals |= {(count.total, count.bodies) for count in _steady_steps(rows, overrides)}
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
        assert count.bodies == 0
        assert count.total > 0
        env.load_state_dict(env.state_dict())
        with OperatorCount() as asked:
            gravity()
        assert asked.bodies > 0
        assert asked.total == count.total  # what it asked for, and no more
