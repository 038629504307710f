"""What a curriculum sets of terms: state in whatever form a parameter has; wrong stages are refused at construction."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from action_support import same
from manager_support import Feed, MakeEnv, calls, layout_of, zeros

from unilab_core import ConfigError, NonFiniteError, ResetRejectedError, SceneEntityCfg
from unilab_managers import CurriculumTermCfg, EventTermCfg, ManagerBasedRlEnv, RewardTermCfg, mdp


def shove(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    velocity_range: Mapping[str, tuple[float, float]],
    strength: float | None = None,
    boxes: tuple[tuple[float, float], ...] = ((0.0, 1.0), (2.0, 3.0)),
    asset_cfg: SceneEntityCfg = SceneEntityCfg(),  # noqa: B008 - frozen
) -> None:
    """Notes what it was called with."""
    calls.append((velocity_range, strength, boxes, asset_cfg))


EVENTS = {"shove": EventTermCfg(func=shove, mode="reset", params={"velocity_range": {"x": (0.0, 0.0)}})}
NEW: list[dict[str, Any]] = [
    {"velocity_range": {"x": (-1.0, 1.0), "yaw": (0.0, 0.1)}},
    {"strength": 0.3},
    {"boxes": ((5.0, 6.0),)},
    {"asset_cfg": SceneEntityCfg(joint_names=("hinge",))},
]


@pytest.mark.parametrize("new", NEW)
def test_qa_084_a_state_brings_parameters_of_every_form_back(make_env: MakeEnv, new: dict[str, Any]) -> None:
    env, other = make_env(events=EVENTS), make_env(events=EVENTS)
    assert same(env.state_dict(), other.state_dict())
    env.event_manager.set_params("shove", **new)
    assert not same(env.state_dict(), other.state_dict())
    other.load_state_dict(env.state_dict())
    assert same(env.state_dict(), other.state_dict())
    calls.clear()
    other.reset()
    env.reset()
    assert calls[0] == calls[1]
    assert other.event_manager.get_params("shove") == env.event_manager.get_params("shove")
    assert other.event_manager.get_params("shove")[next(iter(new))] == next(iter(new.values()))


def test_a_state_takes_a_changed_parameter_away_too(make_env: MakeEnv) -> None:
    env, other = make_env(events=EVENTS), make_env(events=EVENTS)
    env.event_manager.set_params("shove", strength=0.3)
    env.load_state_dict(other.state_dict())
    assert env.event_manager.get_params("shove")["strength"] is None


def test_parameters_that_were_set_one_after_the_other_all_hold(make_env: MakeEnv) -> None:
    env = make_env(events=EVENTS)
    for new in NEW:
        env.event_manager.set_params("shove", **new)
    params = env.event_manager.get_params("shove")
    assert params == {name: value for new in NEW for name, value in new.items()}


def sets_then_fails(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    """Widens a range and fails, once told to."""
    if "fail" in calls:
        env.event_manager.set_params("shove", velocity_range={"x": (-9.0, 9.0)}, strength=9.0)
        raise ArithmeticError("no")


def test_a_rejected_reset_takes_back_parameters_of_every_form(make_env: MakeEnv) -> None:
    env = make_env(events=EVENTS | {"fails": EventTermCfg(func=sets_then_fails, mode="reset")})
    before, params = env.state_dict(), env.event_manager.get_params("shove")
    calls.append("fail")
    with pytest.raises(ResetRejectedError):
        env.reset()
    assert same(env.state_dict(), before)
    assert env.event_manager.get_params("shove") == params


def test_a_refused_parameter_changes_nothing(make_env: MakeEnv) -> None:
    env = make_env(events=EVENTS)
    before = env.state_dict()
    with pytest.raises(ConfigError, match="events term 'shove': .*no parameter 'strenght'.*strength"):
        env.event_manager.set_params("shove", strength=1.0, strenght=2.0)
    assert same(env.state_dict(), before)


# ---------------------------------------------------------------- stages that come later


def never(func: Any, **params: Any) -> dict[str, CurriculumTermCfg]:
    """Returns a curriculum whose one stage comes after a million steps."""
    name, stage = next((key, value) for key, value in params.items() if isinstance(value, dict))
    others = {key: value for key, value in params.items() if key != name}
    stages = ({"step": 1_000_000, **stage},)
    return {"later": CurriculumTermCfg(func=func, mode="step", params={"stages": stages, **others})}


POSE = {"pose": RewardTermCfg(func=mdp.joint_posture_exp, weight=1.0, params={"weights": {"slider": 1.0}})}
LATER: list[tuple[dict[str, CurriculumTermCfg], str]] = [
    (
        never(mdp.event_params, event_name="shove", stage={"params": {"strenght": 1.0}}),
        "no parameter 'strenght'",
    ),
    (
        never(mdp.reward_params, reward_name="pose", stage={"params": {"weight": 1.0}}),
        "no parameter 'weight'",
    ),
    (never(mdp.reward_weight, reward_name="pose", stage={"weight": "much"}), "weight"),
]


@pytest.mark.parametrize(("curriculum", "message"), LATER)
def test_a_wrong_stage_is_refused_at_construction_and_not_when_its_step_comes(
    make_env: MakeEnv, curriculum: dict[str, CurriculumTermCfg], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_env(events=EVENTS, rewards=POSE, curriculum=curriculum)


def test_stages_that_were_tried_leave_no_trace(make_env: MakeEnv) -> None:
    curriculum = never(mdp.event_params, event_name="shove", stage={"params": {"strength": 1.0}})
    env = make_env(events=EVENTS, curriculum=curriculum)
    env.step(zeros(env))
    assert env.event_manager.get_params("shove")["strength"] is None


# ---------------------------------------------------------------- a term that works its parameters out once


def test_weights_of_a_posture_that_a_curriculum_sets_count_and_come_back_with_a_state(
    make_env: MakeEnv,
) -> None:
    feed = Feed()
    options: dict[str, Any] = {"rewards": POSE, "scale_rewards_by_dt": False, "layout": layout_of()}
    env, other = make_env(1, feed=feed, **options), make_env(1, feed=feed, **options)
    feed.now["qpos"] = torch.tensor([[1.0, 0.0]])
    assert env.step(zeros(env)).reward.item() == pytest.approx(2.718281828**-1.0)
    env.reward_manager.set_params("pose", weights={"slider": 0.25})
    assert env.step(zeros(env)).reward.item() == pytest.approx(2.718281828**-0.25)
    other.load_state_dict(env.state_dict())
    assert other.step(zeros(other)).reward.item() == pytest.approx(2.718281828**-0.25)


# ---------------------------------------------------------------- what is said of them


def odd_reward(env: ManagerBasedRlEnv, index: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Returns a column of the sensor; has a default that no config could hold."""
    return env.scene.sensor("probe")[:, index].to(dtype)


def test_a_default_that_no_config_can_hold_keeps_nobody_from_describing_the_term(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(2, feed=feed, rewards={"odd": RewardTermCfg(func=odd_reward, weight=1.0)})
    assert env.reward_manager.get_params("odd") == {"index": 0, "dtype": torch.float32}
    env.reward_manager.set_params("odd", index=1)
    assert env.describe().terms["rewards"][0].params == {"index": 1}
    assert "odd" in str(env)
    feed.probe([[0.0, float("nan"), 0.0], [0.0, 0.0, 0.0]])
    with pytest.raises(NonFiniteError, match=r"reward is not finite at rows \[0\].*probe"):
        env.step(zeros(env))
