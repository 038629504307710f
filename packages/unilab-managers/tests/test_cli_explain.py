"""`unilab explain` and `print(env)`: what they show, in how many columns, and what they answer to a wrong input."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import pytest
import torch
from manager_support import MakeEnv, Run, base_cfg, group, layout_of, mujoco_cfg, ones, probe

from unilab_core import SceneEntityCfg, TaskSpec, host_term, registry
from unilab_managers import (
    AdditiveBiasNoiseCfg,
    ConstantNoiseCfg,
    CurriculumTermCfg,
    EventTermCfg,
    GaussianNoiseCfg,
    ManagerBasedRlEnv,
    ManagerBasedRlEnvCfg,
    MetricsTermCfg,
    ObservationTermCfg,
    RecorderTermCfg,
    RewardTermCfg,
    TerminationTermCfg,
    UniformNoiseCfg,
    mdp,
)

CART = SceneEntityCfg(joint_names=("slider",))


@host_term("qvel")
def _speed_on_the_host(env: ManagerBasedRlEnv, host: dict[str, torch.Tensor]) -> torch.Tensor:
    return host["qvel"].square().sum(dim=1)


def everything() -> ManagerBasedRlEnvCfg:
    """Returns a task with every kind of term, and every setting that is described in its own way."""
    params = {"asset_cfg": CART}
    noisy = ObservationTermCfg(
        func=mdp.joint_pos_rel,
        noise=UniformNoiseCfg(n_min=-0.2, n_max=0.2),
        clip=(-5.0, 5.0),
        scale=(2.0, 0.5),
        delay_min_lag=1,
        delay_max_lag=3,
        delay_hold_prob=0.25,
        history_length=4,
    )
    return mujoco_cfg(
        observations={
            "obs": group(
                joints=noisy,
                drifting=ObservationTermCfg(
                    func=mdp.joint_vel,
                    noise=AdditiveBiasNoiseCfg(
                        bias=GaussianNoiseCfg(std=0.1), noise=ConstantNoiseCfg(bias=0.5)
                    ),
                ),
                scaled=ObservationTermCfg(
                    func=mdp.joint_vel,
                    params=params,
                    noise=GaussianNoiseCfg(mean=1.0, std=0.01, operation="scale"),
                ),
                target=ObservationTermCfg(func=mdp.generated_commands, params={"command_name": "twist"}),
                last_action=ObservationTermCfg(func=mdp.last_action),
            ),
            "critic": group(enable_corruption=False, joints=noisy),
        },
        commands={
            "twist": mdp.UniformVelocityCommandCfg(
                lin_vel_x=(-1.0, 1.0),
                lin_vel_y=(0.0, 0.0),
                ang_vel_z=(-1.0, 1.0),
                resampling_time_range=(1.0, 2.0),
            )
        },
        rewards={
            "one": RewardTermCfg(func=ones, weight=1.0),
            "slow": RewardTermCfg(func=_speed_on_the_host, weight=-0.01),
            "posture": RewardTermCfg(
                func=mdp.joint_posture_exp, weight=1 / 3, params={"weights": {".*": 2.0}}
            ),
        },
        terminations={"time_out": TerminationTermCfg(func=mdp.time_out)},
        events={
            "armature": EventTermCfg(
                func=mdp.randomize_joint_armature,
                mode="startup",
                params={"armature_range": (0.9, 1.1), "operation": "scale", **params},
            ),
            "place": EventTermCfg(
                func=mdp.reset_joints_by_offset,
                mode="reset",
                params={"position_range": (-0.1, 0.1), "velocity_range": (-0.2, 0.2)},
            ),
            "kick": EventTermCfg(
                func=mdp.reset_joints_by_offset,
                mode="interval",
                interval_range_s=(1.5, 2.5),
                params={"position_range": (0.0, 0.0), "velocity_range": (-0.2, 0.2)},
            ),
            "shove": EventTermCfg(
                func=mdp.apply_body_wrench,
                mode="step",
                params={
                    "asset_cfg": SceneEntityCfg(body_names=("arm",)),
                    "force_range": (1.0, 1.0),
                    "torque_range": (0.0, 0.0),
                    "duration_range_s": (0.04, 0.04),
                    "cooldown_range_s": (0.10, 0.10),
                },
            ),
        },
        curriculum={
            "rise": CurriculumTermCfg(
                func=mdp.reward_weight,
                mode="step",
                params={"reward_name": "slow", "stages": ({"step": 100, "weight": -0.1},)},
            )
        },
        metrics={"speed": MetricsTermCfg(func=mdp.joint_speed, reduce="max")},
        recorders={"episodes": RecorderTermCfg(func=mdp.EpisodeRecorder, params={"folder": "episodes"})},
    )


@pytest.fixture
def run(unilab: Run) -> Run:
    """Runs the command with the tasks `small` and `everything`."""
    for name, cfg in (("small", "manager_support:mujoco_cfg"), ("everything", f"{__name__}:everything")):
        registry.register_task(TaskSpec(name, cfg))
    return partial(unilab, "explain")


def _section(text: str, title: str) -> str:
    found = re.search(rf"(?m)^{re.escape(title)}.*\n(  .*\n?)*", text)
    assert found, f"{title!r} is not in\n{text}"
    return found[0]


# ---------------------------------------------------------------- the text


def test_everything_fits_100_columns_and_no_line_ends_in_blanks(run: Run) -> None:
    code, out, err = run("everything")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 100
    assert all(line == line.rstrip() for line in out.splitlines())


def test_every_term_of_every_manager_stands_in_its_section(run: Run) -> None:
    _, out, _ = run("everything")
    cfg = everything()
    for kind in ("commands", "rewards", "terminations", "events", "curriculum", "metrics", "recorders"):
        section = _section(out, kind.capitalize())
        for name in getattr(cfg, kind):
            assert f"\n  {name} " in section, (kind, name)
    for name, one in cfg.observations.items():
        section = _section(out, f"Observations {name}")
        for term in one.terms:
            assert re.search(rf"\n  [-\d]+ +{term} ", section), (name, term)


def test_the_head_says_how_fast_and_how_long(run: Run) -> None:
    _, out, _ = run("small", "--num-envs", "3")
    assert out.splitlines()[:3] == [
        "small on mujoco",
        "ManagerBasedRlEnv: 3 rows on cpu, host_bridge",
        "control 50 Hz (2 x 0.01 s), episode 0.1 s = 5 steps, rewards per second",
    ]


def test_settings_of_an_observation_read_like_formulas_in_the_order_of_the_pipeline(
    make_env: MakeEnv,
) -> None:
    biased = AdditiveBiasNoiseCfg(bias=GaussianNoiseCfg(std=0.1), noise=ConstantNoiseCfg(bias=0.5))
    for settings, shown in (
        ({"noise": UniformNoiseCfg(n_min=-0.2, n_max=0.2)}, "noise=U(-0.2, 0.2)"),
        ({"noise": GaussianNoiseCfg(mean=1.0, std=0.01, operation="scale")}, "noise=x N(1, 0.01)"),
        ({"noise": ConstantNoiseCfg(bias=0.5, operation="abs")}, "noise== const(0.5)"),
        ({"noise": biased}, "noise=AdditiveBiasNoise(bias=N(0, 0.1), noise=const(0.5))"),
        (
            {"history_length": 2, "delay_max_lag": 3, "scale": 0.0, "clip": (-1.0, 2.5)},
            "clip=(-1, 2.5), scale=0, delay_max_lag=3, history_length=2",
        ),
        ({}, ""),
    ):
        cfg = group(probe=ObservationTermCfg(func=probe, **settings))
        section = _section(str(make_env(observations={"obs": cfg})), "Observations obs").splitlines()
        has_history = "history_length" in settings
        columns = "0-5" if has_history else "0-2"
        assert re.split("  +", section[2].strip())[2 if shown else 1 :] == (
            [shown, "sensor:probe"] if shown else ["probe", "sensor:probe"]
        )
        assert section[2].split()[0] == columns


def test_a_group_without_corruption_shows_no_noise(run: Run) -> None:
    _, out, _ = run("everything")
    assert "noise" in _section(out, "Observations obs")
    assert "noise" not in _section(out, "Observations critic")


def test_names_that_a_shell_would_expand_stand_in_braces_and_others_in_a_row(make_env: MakeEnv) -> None:
    for joints, shown, driven in (
        (("FL_hip", "FL_calf", "FR_hip", "FR_calf"), "{FL,FR}_{hip,calf}", "robot/{FL,FR}_{hip,calf}"),
        (("a_hip", "b_hip"), "{a,b}_hip", "robot/{a,b}_hip"),
        (("a_hip", "b_calf"), "a_hip b_calf", "robot/a_hip robot/b_calf"),
        (("a_hip", "b"), "a_hip b", "robot/a_hip robot/b"),
        (("one", "two"), "one two", "robot/{one,two}"),
        (("L_hip", "R_calf", "L_calf"), "L_hip R_calf L_calf", "robot/L_hip robot/R_calf robot/L_calf"),
        (("one",), "one", "robot/one"),
    ):
        terms = {
            "position": ObservationTermCfg(func=mdp.joint_pos),
            "sent": ObservationTermCfg(func=mdp.last_action),
        }
        text = str(make_env(layout=layout_of(*joints), observations={"obs": group(**terms)}))
        position, sent = (re.split("  +", row) for row in _section(text, "Observations obs").splitlines()[2:])
        assert position[1:] == [position[1], "position", "rad", shown, "qpos"]
        assert sent[1:] == [sent[1], "sent", shown]
        (action,) = _section(text, "Actions").splitlines()[2:]
        assert re.split("  +", action)[3] == driven


def test_a_sliding_joint_has_metres_and_a_hinge_radians(run: Run) -> None:
    _, out, _ = run("small", "--json")
    described = json.loads(out)
    units = dict(zip(described["observations"]["obs"], described["units"]["obs"], strict=True))
    assert {label: unit for label, unit in units.items() if "action" not in label} == {
        "position[slider]": "m",
        "position[hinge]": "rad",
        "velocity[slider]": "m/s",
        "velocity[hinge]": "rad/s",
    }
    _, out, _ = run("small")
    assert re.search(r"position +m, rad +slider hinge", out)


def test_what_is_left_as_it_is_by_default_is_not_said_again(run: Run) -> None:
    _, out, _ = run("everything")
    for text in ("entity=", "preserve_order", "name=robot", "delay_per_env", "=none", "distribution"):
        assert text not in out
    assert "asset_cfg=SceneEntity(joint_names=slider)" in _section(out, "Events")


def test_parameters_show_what_a_curriculum_has_made_of_them(make_env: MakeEnv) -> None:
    env = make_env(rewards={"one": RewardTermCfg(func=ones, weight=1.0)})
    env.reward_manager.set_weight("one", -2.5)
    assert re.search(r"\n  one +-2.5\n?", _section(str(env), "Rewards"))


def test_the_ledger_names_host_terms_and_what_they_move(run: Run) -> None:
    _, out, _ = run("everything")
    # Two columns of 4 rows to the host, one float of each row back.
    assert re.search(r"every step +host \(rewards term 'slow'\) +2 +48\n", _section(out, "Ledger"))


def test_wrenches_are_columns_of_the_control_packet(run: Run) -> None:
    _, out, _ = run("everything")
    control = _section(out, "Control: 8 columns").splitlines()
    assert len(control) == 2 + 2 + 6
    assert all("robot/arm" in line for line in control[4:])


def test_a_cell_too_long_for_its_column_goes_on_below(make_env: MakeEnv) -> None:
    joints = [f"a_joint_with_a_long_name_{i}" for i in (*range(10), "x_y")]
    text = str(make_env(layout=layout_of(*joints)))
    assert max(map(len, text.splitlines())) <= 100
    assert all(text.count(f"robot/{joint}") == 2 for joint in joints)  # of the action, and of the control


# ---------------------------------------------------------------- JSON


def test_json_is_the_description_and_nothing_else(run: Run) -> None:
    code, out, err = run("everything", "--json", "--num-envs", "2")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert {key: found.pop(key) for key in ("task", "backend", "num_envs")} == {
        "task": "everything",
        "backend": "mujoco",
        "num_envs": 2,
    }
    with ManagerBasedRlEnv(everything().with_({"num_envs": 2})) as env:
        assert found == json.loads(json.dumps(env.describe().to_data()))


def test_json_keeps_every_setting_also_where_the_text_is_silent(run: Run) -> None:
    _, out, _ = run("everything", "--json")
    terms = json.loads(out)["terms"]
    joints = next(term for term in terms["observations"] if term["name"] == "obs/joints")
    assert joints["settings"]["noise"]["n_min"] == -0.2
    assert joints["settings"]["delay_per_env"] is True
    assert joints["settings"]["history_length"] == 4
    assert len(joints["columns"]) == 8


def test_json_counts_the_bytes_that_the_text_shows(run: Run) -> None:
    _, out, _ = run("small", "--json")
    ledger = {(p["kind"], p["when"]): p for p in json.loads(out)["ledger"]}
    assert ledger["control", "step"]["fixed_bytes"] == 4 * 4 * 2
    assert ledger["read", "step"]["fixed_bytes"] == 4 * 4 * (2 + 2 + 2)


# ---------------------------------------------------------------- overrides and wrong inputs


def test_an_override_changes_what_is_explained(run: Run) -> None:
    code, out, _ = run("small", "--set", "rewards.one.weight=2.5", "--set", "events.place=None")
    assert code == 0
    assert re.search(r"one +2.5", _section(out, "Rewards"))
    assert "Events" not in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["smal"], "unknown task 'smal'; did you mean 'small'"),
        (["small", "--set", "rewards.on.weight=2"], "rewards.on"),
        (["small", "--set", "rewards.on.weight=2"], "did you mean 'one'"),
        (["small", "--set", "rewards.one.wieght=2"], "did you mean 'weight'"),
        (["small", "--set", "rewards.one.weight=heavy"], "rewards.one.weight"),
        (["small", "--set", "rewards.one.weight"], "expected PATH=VALUE"),
        (["small", "--set", "decimation=1", "--set", "decimation=2"], "'decimation' is given twice"),
        (["small", "--set", "actions.effort.scale={slidr: 1.0}"], "slidr"),
        (["small", "--backend", "mujco"], "did you mean 'mujoco'"),
        (["small", "--num-envs", "0"], "num-envs"),
        (["small", "--jsn"], "--json"),
        ([], "TASK"),
    ],
)
def test_a_wrong_input_is_one_message_and_exit_2(run: Run, args: list[str], message: str) -> None:
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_names_of_tasks_have_no_case(run: Run) -> None:
    assert run("SMALL")[0] == 0


def test_an_environment_without_managers_has_a_description_but_no_terms(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from unilab_core import TorchEnv, factory

    class _Plain:
        num_envs = 4

        def describe(self) -> Any:
            with ManagerBasedRlEnv(mujoco_cfg()) as env:
                return env.describe()

        def close(self) -> None:
            pass

    assert not issubclass(_Plain, TorchEnv)
    import unilab_core

    monkeypatch.setattr(unilab_core, "make_env", lambda *args, **options: _Plain(), raising=False)
    assert factory.make_env is not unilab_core.make_env
    code, out, err = run("small")
    assert (code, out) == (2, "")
    assert "small is a _Plain, which has no managers to explain; --json describes any environment" in err
    code, out, _ = run("small", "--json")
    assert code == 0
    assert json.loads(out)["num_envs"] == 4


def test_print_shows_the_same_text_as_the_command(run: Run) -> None:
    _, out, _ = run("small")
    with ManagerBasedRlEnv(mujoco_cfg()) as env:
        assert out == f"small on mujoco\n{env}\n"


def test_a_floor_of_rewards_and_rewards_per_step_are_said(make_env: MakeEnv) -> None:
    text = str(make_env(reward_floor=-0.5, scale_rewards_by_dt=False))
    assert "rewards per step, sum not below -0.5" in text
    assert base_cfg().scale_rewards_by_dt
