"""The dry first reset: what every hook reads is found, what is wrong is named, and nothing is left of it."""

from __future__ import annotations

import pytest
import torch
from core_support import RobotEnv, ScriptedEnv, steps, zeros
from twins import HoardingEnv, differences, plain_state

from unilab_core import CapabilityError, ConfigError, EnvRng, SceneEntityCfg

LEG, FOOT = (SceneEntityCfg(body_names=(name,)) for name in ("leg", "foot"))


def test_terms_are_after_construction_as_they_were_before_it():
    seen = {}

    class Env(HoardingEnv):
        def _build(self) -> None:
            super()._build()
            seen["before"] = plain_state(self.term)

        def _terminations(self):
            self.term.act(torch.arange(self.num_envs))
            return super()._terminations()

    with Env(3, seed=7) as env:
        assert differences(plain_state(env.term), seen["before"]) == []
        assert torch.equal(env.rng.get_state(), EnvRng(7, "cpu").get_state())


def test_qa_031_the_first_trigger_of_a_guard_between_resets_is_not_used_up_by_construction():
    class Guarded(ScriptedEnv):
        def _build(self) -> None:
            super()._build()
            self.last, self.ran = [-100] * self.num_envs, []

        def _stage_reset(self, ids: torch.Tensor) -> None:
            for row in ids.tolist():
                if self.step_counter - self.last[row] >= 10:
                    self.last[row] = self.step_counter
                    self.ran.append((self.step_counter, row))

    with Guarded(1) as env:
        assert env.ran == []
        for step in range(23):
            if step in (0, 5, 12, 21, 22):
                env.reset()
            steps(env, 1)
        assert [at for at, _ in env.ran] == [0, 12, 22]


def test_a_read_behind_a_branch_on_the_data_is_found_by_the_second_run():
    def look(env):
        data = env.scene["robot"].data
        if bool((data.root_pos_w[:, 2] < 0.5).any()):  # never at the default height of 1 m
            return data.bodies(FOOT).pos_w
        return data.bodies(LEG).pos_w

    with RobotEnv(4, look=look) as env:
        assert {"body:robot/leg", "body:robot/foot"} <= set(env.describe().reads)
        env.reset()
        steps(env, 2)


def test_a_raise_on_random_values_ends_the_call_and_its_reads_count():
    def look(env):
        data = env.scene["robot"].data
        if bool((data.root_pos_w[:, 2] < 0.5).any()):
            feet = data.bodies(FOOT).pos_w
            raise ArithmeticError(f"never so low: {feet}")

    with RobotEnv(4, look=look) as env:
        assert "body:robot/foot" in env.describe().reads
        env.reset()
        steps(env, 2)


def test_the_second_run_sees_finite_values_and_unit_quaternions_and_repeats_itself():
    seen = []

    def look(env):
        data = env.scene["robot"].data
        seen.append((data.root_quat_w.clone(), data.bodies(LEG).quat_w.clone(), data.joint_vel.clone()))

    for _ in range(2):
        RobotEnv(4, look=look).close()
    first, second, again, third = seen[0], seen[1], seen[2], seen[3]
    assert not torch.equal(first[2], second[2])
    for one, two in ((first, again), (second, third)):
        assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    for quats in (second[0], second[1][:, 0]):
        torch.testing.assert_close(quats.norm(dim=1), torch.ones(4))


def test_the_engine_is_left_as_it_was():
    with (
        RobotEnv(2) as env,
        RobotEnv(2, look=lambda env: env.scene["robot"].data.bodies(LEG).pos_w) as looking,
    ):
        one, two = env.backend.snapshot(), looking.backend.snapshot()
        assert differences(one, two) == []
        assert looking.transfer_stats.reset.transfers == 0


def test_hooks_run_in_the_order_of_construction_reset_and_step():
    order = []
    hooks = ["_on_episodes_end", "_stage_reset", "_before_commit", "_clear_rows", "_after_commit", "_control"]
    hooks += [
        "_begin_step",
        "_terminations",
        "_rewards",
        "_advance",
        "_measure",
        "_observe",
        "_after_step",
        "_after_reset",
    ]

    def noted(name):
        def hook(self, *arguments):
            order.append(name)
            return getattr(ScriptedEnv, name)(self, *arguments)

        return hook

    def startup(self, ids):
        order.append("_stage_startup")

    noting = {"_stage_startup": startup, **{name: noted(name) for name in hooks}}
    type("Noting", (ScriptedEnv,), noting)(3).close()
    expected = ["_stage_startup", *hooks]
    assert order[: len(expected)] == expected
    assert order.count("_rewards") == 2


@pytest.mark.parametrize(
    ("hook", "value", "message"),
    [
        (
            "_terminations",
            None,
            r"terminations: TypeError: Wrong._terminations returned NoneType, expected \(terminated",
        ),
        (
            "_terminations",
            (torch.zeros(3), torch.zeros(3)),
            "terminations: TypeError: .* returned torch.float32, expected torch.bool",
        ),
        (
            "_rewards",
            torch.zeros(3, 1),
            r"rewards: ValueError: Wrong._rewards returned shape \(3, 1\), expected \(3,\)",
        ),
        ("_rewards", 0.0, "rewards: TypeError: Wrong._rewards returned float, expected torch.float32"),
        (
            "_control",
            torch.zeros(3, 2),
            r"control: ValueError: .*_control returned \(3, 2\) on cpu, expected \(3, 1\)",
        ),
        ("_control", None, "control: TypeError: .*_control returned NoneType"),
    ],
)
def test_qa_102_what_a_hook_returns_is_checked_at_construction(hook, value, message):
    wrong = type("Wrong", (ScriptedEnv,), {hook: lambda self, *arguments: value})
    with pytest.raises(ConfigError, match=message):
        wrong()


def test_what_the_backend_cannot_do_stays_a_capability_error():
    def cannot(self):
        raise CapabilityError("no contacts here")

    with pytest.raises(CapabilityError, match="no contacts here"):
        type("Wrong", (ScriptedEnv,), {"_rewards": cannot})()


def test_what_the_dry_first_reset_writes_is_dropped():
    def startup(self, ids):
        self.written = getattr(self, "written", 0) + 1

    env = type("Env", (ScriptedEnv,), {"_stage_startup": startup})(3, spread=1.0)
    assert env.written == 1  # the real start alone
    assert env.backend.get_state_views()["qpos"].tolist() == [[0.0, 0.0]] * 3
    env.reset()
    env.step(zeros(env))
    env.close()
