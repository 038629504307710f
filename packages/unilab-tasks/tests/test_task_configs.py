"""Configs of the shipped tasks: the same after a YAML round trip; of a wrong override nothing is applied."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from unilab_core import Cfg, ConfigError, get_task, import_object, list_tasks, make_env
from unilab_core.cli import main
from unilab_core.factory import load_env_cfg

TASK = "velocity-flat-quadruped"
TASKS = ["cartpole-balance", "cartpole-swingup", TASK]
OFF_POLICY = ("sac", "td3", "fast_sac", "fast_td3", "flash_sac")
LEARNERS = [
    (task, algorithm) for task in TASKS for algorithm in (("ppo",) if task == TASK else ("ppo", *OFF_POLICY))
]


def test_the_tasks_below_are_all_that_are_shipped():
    assert [task.name for task in list_tasks()] == TASKS
    assert [(task.name, name) for task in list_tasks() for name in task.learners] == LEARNERS


# ---------------------------------------------------------------- YAML


def _round_trip(cfg: Cfg) -> None:
    text = cfg.to_yaml()
    back = type(cfg).from_yaml(text)
    assert back == cfg
    assert type(back) is type(cfg)
    assert back.to_yaml() == text
    assert Cfg.from_yaml(text) == cfg  # it says itself what it is


@pytest.mark.parametrize("task", TASKS)
def test_an_environment_config_is_the_same_after_a_round_trip(task: str):
    _round_trip(load_env_cfg(task))


@pytest.mark.parametrize(("task", "algorithm"), LEARNERS)
def test_a_learner_config_is_the_same_after_a_round_trip(task: str, algorithm: str):
    _round_trip(import_object(get_task(task).learners[algorithm])())


@pytest.mark.parametrize("task", [task for task in TASKS if task == TASK])
def test_an_evaluation_config_is_the_same_after_a_round_trip(task: str):
    spec = get_task(task)
    measured = import_object(spec.evaluation)(load_env_cfg(task))
    assert measured != load_env_cfg(task)
    _round_trip(measured)


def test_an_environment_of_the_config_that_was_read_back_steps_alike():
    cfg = load_env_cfg(TASK, num_envs=2)
    outcomes = []
    for one in (cfg, Cfg.from_yaml(cfg.to_yaml())):
        with make_env(one, seed=3) as env:
            env.reset()
            for _ in range(3):
                state = env.step(torch.full((2, 12), 0.1))
            outcomes.append(torch.cat([state.obs["critic"], state.reward[:, None]], dim=1))
    assert torch.equal(*outcomes)


# ---------------------------------------------------------------- overrides that are right


def test_qa_100_a_parameter_that_is_overridden_keeps_its_siblings():
    cfg = load_env_cfg(TASK, overrides={"rewards.track_lin_vel.params.std": 0.25})
    assert dict(cfg.rewards["track_lin_vel"].params) == {"command_name": "twist", "std": 0.25}


def test_qa_100_none_disables_a_term():
    cfg = load_env_cfg(TASK, overrides={"terminations.low": None, "events.push": None})
    assert list(cfg.terminations) == ["time_out", "tilted"]
    assert "push" not in cfg.events


def test_qa_104_what_a_config_does_not_set_keeps_the_models_own_value():
    robot = load_env_cfg(TASK).scene.entities["robot"]
    alone = robot.spec(**robot.params).compile()
    assert alone.dof_armature[6:].min() > 0.0
    with make_env(TASK, num_envs=1) as env:
        for name in ("dof_armature", "dof_damping", "dof_frictionloss"):
            assert list(env.model_layout.fields[name].nominal) == getattr(alone, name).tolist()
        limits = env.scene["robot"].data.joint_pos_limits[0]
        assert limits.tolist() == torch.tensor(alone.jnt_range[1:], dtype=torch.float32).tolist()
    with make_env("cartpole-balance", num_envs=1) as env:
        # The hinge has no limits: infinite ones, not (0, 0), so that no penalty and no clip ever sees one.
        data, joints = env.scene["robot"].data, env.scene["robot"].joint_names
        assert data.joint_pos_limits[0, joints.index("hinge")].tolist() == [-torch.inf, torch.inf]


def test_qa_104_an_explicit_zero_is_set():
    own = load_env_cfg(TASK).scene.entities["robot"].joint_pos
    assert 0.0 not in own.values()
    zero = {"scene.entities.robot.joint_pos": {".*": 0.0}}
    with make_env(TASK, num_envs=1, overrides=zero) as env:
        assert env.scene["robot"].data.default_joint_pos[0].tolist() == [0.0] * 12


# ---------------------------------------------------------------- overrides that are wrong

Wrong = tuple[Mapping[Any, Any] | Sequence[str], str, str]
_GAIT = "unilab_managers.mdp"
_CLOCK = {"velocity_command": "twist", "frequency_hz": 2.0}

WRONG: dict[str, Wrong] = {
    # names along the path
    "misspelt field": ({"num_evns": 4}, "num_evns", "did you mean 'num_envs'?"),
    "misspelt manager": ({"reward.gait.weight": 1.0}, "reward", "did you mean 'rewards'"),
    "misspelt group": ({"observations.obss.enable_corruption": False}, "observations.obss", "'obs'?"),
    "misspelt term": ({"rewards.trackng_lin_vel.weight": 2.0}, "rewards.trackng_lin_vel", "'track_lin_vel'"),
    "misspelt field of a term": ({"rewards.gait.wieght": 2.0}, "rewards.gait.wieght", "mean 'weight'?"),
    "misspelt parameter": (
        {"rewards.gait.params.swing_heigth": 0.1},
        "rewards.gait.params",
        "'swing_height'?",
    ),
    "misspelt parameter of a class term": (
        {"rewards.gait.params.clok": "x"},
        "rewards.gait.params",
        "'clock'?",
    ),
    "misspelt field of a parameter": (
        {"rewards.gait.params.asset_cfg.site_name": ()},
        "rewards.gait.params.asset_cfg.site_name",
        "did you mean 'site_names'",
    ),
    "misspelt field of noise": (
        {"observations.obs.terms.joint_pos.noise.n_mn": -1.0},
        "observations.obs.terms.joint_pos.noise.n_mn",
        "did you mean 'n_min'",
    ),
    "misspelt entity": ({"scene.entities.robt.joint_pos": {}}, "scene.entities.robt", "mean 'robot'?"),
    "misspelt setting of the simulation": ({"sim.timestp": 0.002}, "sim.timestp", "mean 'timestep'?"),
    "misspelt setting of a command": ({"commands.twist.lin_vel_xx": (0, 1)}, "commands.twist", "'lin_vel_x'"),
    "a path one step short": (
        {"observations.obs.joint_pos.scale": 2.0},
        "observations.obs.joint_pos",
        "did you mean 'terms.joint_pos'?",
    ),
    "a parameter beside params": ({"rewards.gait.radius": 0.02}, "rewards.gait.radius", "'params.radius'?"),
    "a path one step long": ({"rewards.gait.weight.value": 1.0}, "rewards.gait.weight", "it holds 2.0"),
    "an index into a tuple": (
        {"rewards.gait.params.offsets.0": 0.5},
        "rewards.gait.params.offsets",
        "it holds (0.0, 0.5, 0.5, 0.0)",
    ),
    "an index into a range": (
        {"commands.twist.lin_vel_x.0": -1.0},
        "commands.twist.lin_vel_x",
        "(-0.5, 1.0)",
    ),
    "an empty name": ({"rewards..weight": 1.0}, "rewards..weight", "empty name in the path"),
    "a path that is no text": ({3: 4}, "3", "expected 'path.to.field'"),
    # terms that are not there
    "qa_100 a setting of a term that is not there": (
        {"rewards.smooth.weight": 1.0},
        "rewards.smooth",
        "'gait'",
    ),
    "disabling a term that is not there": ({"events.pusch": None}, "events.pusch", "did you mean 'push'?"),
    "disabling where there are no terms": ({"curriculum.rise": None}, "curriculum.rise", "there are none"),
    "a field of what is None": ({"nan_guard.policy": "raise"}, "nan_guard", "it holds None"),
    # values
    "a number as text": ({"rewards.gait.weight": "2.0"}, "rewards.gait.weight", "a valid number (got '2.0')"),
    "true as a number": ({"rewards.gait.weight": True}, "rewards.gait.weight", "a valid number (got True)"),
    "NaN": ({"rewards.gait.weight": float("nan")}, "rewards.gait.weight", "a finite number (got nan)"),
    "an infinity": ({"reward_floor": float("-inf")}, "reward_floor", "a finite number (got -inf)"),
    "NaN among parameters": (
        {"rewards.gait.params.radius": float("nan")},
        "rewards.gait.params",
        "radius is nan",
    ),
    "a fraction as a count": ({"decimation": 4.0}, "decimation", "a valid integer (got 4.0)"),
    "a count of none": ({"decimation": 0}, "decimation", "expected a positive number"),
    "a share above one": (
        {"commands.twist.rel_standing_envs": 1.5},
        "commands.twist.rel_standing_envs",
        "1.5",
    ),
    "a negative timestep": ({"sim.timestep": -0.002}, "sim.timestep", "greater than 0 (got -0.002)"),
    "a choice that is none": ({"events.push.mode": "intervall"}, "events.push.mode", "'interval' or 'step'"),
    "an inverted range": (
        {"commands.twist.lin_vel_x": (1.0, -0.5)},
        "commands.twist.lin_vel_x",
        "is inverted",
    ),
    "an inverted interval": (
        {"events.push.interval_range_s": (7.0, 3.0)},
        "events.push",
        "shortest <= longest",
    ),
    "inverted bounds of noise": (
        {"observations.obs.terms.joint_pos.noise.n_min": 1.0},
        "observations.obs.terms.joint_pos.noise",
        "n_min 1.0 is above n_max 0.01",
    ),
    "texts in a range": ({"commands.twist.lin_vel_x": ("0", "1")}, "commands.twist.lin_vel_x.0", "(got '0')"),
    "one number as a range": ({"commands.twist.lin_vel_x": 1.0}, "commands.twist.lin_vel_x", "(got 1.0)"),
    # code
    "a function that is not there": (
        {"rewards.gait.func": f"{_GAIT}.rewards_gait:feet_gate"},
        "rewards.gait.func",
        "mean 'feet_gait'",
    ),
    "a module that is not there": (
        {"rewards.gait.func": "unilab_task:x"},
        "rewards.gait.func",
        "cannot import",
    ),
    "a function without a module": (
        {"rewards.gait.func": "gait"},
        "rewards.gait.func",
        "'package.module:name'",
    ),
    "a lambda": (
        {"rewards.gait.func": lambda env: env},
        "rewards.gait.func",
        "is a lambda or a local function",
    ),
    "a function of another signature": (
        {"rewards.gait.func": "unilab_managers.mdp:track_lin_vel_xy_exp"},
        "rewards.gait.params",
        "track_lin_vel_xy_exp has no parameter",
    ),
    "a _target_ of another kind": (
        {"commands.gait": {"_target_": "unilab_managers:EventTermCfg", **_CLOCK}},
        "commands.gait",
        "is not a subclass of CommandTermCfg",
    ),
    "a _target_ that is not there": (
        {"commands.gait": {"_target_": f"{_GAIT}.commands.gait:GaitClokCfg", **_CLOCK}},
        "commands.gait",
        "did you mean 'GaitClockCfg'",
    ),
    # as the command line gives them
    "given twice": (["decimation=2", "decimation=4"], "decimation", "given twice"),
    "given whole and in part": (
        {"rewards.gait.weight": 1.0, "rewards.gait": None},
        "rewards.gait",
        "contradicts an override below it",
    ),
    "no value": (["decimation"], "decimation", "expected PATH=VALUE"),
    "a YAML 1.1 boolean": (["is_finite_horizon=yes"], "is_finite_horizon", "a valid boolean (got 'yes')"),
    "an overflow": (["rewards.gait.weight=1e400"], "rewards.gait.weight", "a finite number (got inf)"),
}


def test_there_are_at_least_40_wrong_overrides():
    assert len(WRONG) >= 40


@pytest.mark.parametrize("case", WRONG)
def test_qa_100_a_wrong_override_names_its_path_and_what_is_right_and_changes_nothing(case: str):
    overrides, path, hint = WRONG[case]
    before = load_env_cfg(TASK)
    if not isinstance(overrides, Mapping):
        right: Any = ["num_envs=2", *overrides]
    else:
        right = {"episode_length_s": 5.0, **overrides}
    with pytest.raises(ConfigError) as error:
        make_env(TASK, overrides=right)
    message = str(error.value)
    assert path in message
    assert hint in message
    assert len(message) < 500
    # Neither the wrong one nor the right one beside it.
    assert load_env_cfg(TASK) == before
    if isinstance(overrides, Mapping):
        text = before.to_yaml()
        with pytest.raises(ConfigError):
            before.with_(right)
        assert before.to_yaml() == text


@pytest.mark.parametrize(
    ("overrides", "owner", "hint"),
    [
        ({"rewards.gait.params.clock": "gate"}, "rewards term 'gait'", "did you mean 'gait'?"),
        ({"rewards.track_lin_vel.params.command_name": "twst"}, "rewards term 'track_lin_vel'", "'twist'?"),
        ({"commands.gait.velocity_command": "twits"}, "commands term 'gait'", "did you mean 'twist'?"),
        ({"commands.gait.entity": "robt"}, "commands term 'gait'", "did you mean 'robot'?"),
        ({"scene.entities.robot.joint_pos.FR_hp": 0.1}, "scene.entities.robot.joint_pos", "'FR_hip'"),
        ({"actions.joint_pos.joint_names": ("FR_hipp",)}, "actions term 'joint_pos'", "'FR_hip'"),
        ({"actions.joint_pos.scale": {"FR_hop": 1.0}}, "actions term 'joint_pos'", "'FR_hip'"),
        (
            {"events.foot_friction.params.asset_cfg.geom_names": ("FR_fot",)},
            "events term 'foot_friction'",
            "'FR_foot'",
        ),
        (
            {"events.foot_friction.params.friction_range": (1.2, 0.4)},
            "events term 'foot_friction'",
            "is inverted",
        ),
        (
            {"observations.obs.terms.joint_pos.scale": (1.0, 2.0)},
            "observations.obs term 'joint_pos'",
            "scale has 2 numbers, expected 12",
        ),
    ],
)
def test_what_only_the_model_can_tell_is_wrong_is_said_when_it_is_built(
    overrides: dict[str, Any], owner: str, hint: str
):
    with pytest.raises(ConfigError) as error:
        make_env(TASK, num_envs=1, overrides=overrides)
    assert owner in str(error.value)
    assert hint in str(error.value)


# ---------------------------------------------------------------- on the command line


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Runs a command in an empty folder; returns what it says when it refuses, with exit code 2 and no trace."""
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> str:
        assert main(list(args)) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert "Traceback" not in shown.err
        assert list(tmp_path.iterdir()) == []
        return shown.err

    return run


@pytest.mark.parametrize(
    ("override", "path", "hint"),
    [
        ("rewards.gait.wieght=2", "rewards.gait.wieght", "did you mean 'weight'?"),
        ("observations.obs.joint_pos.scale=2", "observations.obs.joint_pos", "'terms.joint_pos'?"),
        ("rewards.gait.weight=two", "rewards.gait.weight", "(got 'two')"),
        ("rewards.gait.weight=.nan", "rewards.gait.weight", "(got nan)"),
        ("commands.twist.lin_vel_x=[1, -1]", "commands.twist.lin_vel_x", "is inverted"),
        ("events.pushh=None", "events.pushh", "did you mean 'push'?"),
        (
            "rewards.gait.func=unilab_managers.mdp.rewards_gait:feet_gate",
            "rewards.gait.func",
            "did you mean 'feet_gait'",
        ),
        ("rewards.gait.weight", "rewards.gait.weight", "expected PATH=VALUE"),
    ],
)
@pytest.mark.parametrize("command", ["train", "explain"])
def test_the_command_line_refuses_a_wrong_override(
    refused: Callable[..., str], command: str, override: str, path: str, hint: str
):
    message = refused(command, TASK, "--set", "num_envs=2", "--set", override)
    assert path in message
    assert hint in message


@pytest.mark.parametrize(
    ("override", "path", "hint"),
    [
        ("learner.gama=0.9", "gama", "did you mean 'gamma'?"),
        ("learner.gamma=1.5", "gamma", "less than or equal to 1 (got 1.5)"),
        ("learner.schedule=fix", "schedule", "'adaptive' or 'fixed' (got 'fix')"),
        ("learner.actor_hidden_dims=[]", "actor_hidden_dims", "at least 1 item"),
        ("learner.symmetry=unilab_tasks.velocity.symmetry:mirror", "symmetry", "has no 'mirror'"),
        ("leraner.gamma=0.9", "leraner", "unknown key 'leraner'"),
    ],
)
def test_the_command_line_refuses_a_wrong_setting_of_the_learner(
    refused: Callable[..., str], override: str, path: str, hint: str
):
    message = refused("train", TASK, "--num-envs", "2", "--set", override)
    assert path in message
    assert hint in message
