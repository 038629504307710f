"""What terms remember and write: taken back with a rejected reset, kept in a state, declared beforehand."""

from pathlib import Path
from typing import Any

import pytest
import torch
from manager_support import (
    MakeEnv,
    base_cfg,
    calls,
    group,
    ids,
    layout_of,
    mujoco_cfg,
    noted_ones,
    ones,
    probe,
    zeros,
)

from unilab_core import ConfigError, NanGuardCfg, NonFiniteError, ResetRejectedError, writes
from unilab_core.nan_replay import replay_dump
from unilab_managers import (
    EventTermCfg,
    ManagerBasedRlEnv,
    ManagerBasedRlEnvCfg,
    ObservationTermCfg,
    RewardTermCfg,
    TerminationTermCfg,
    mdp,
)
from unilab_managers.cfg.term import TermCfg
from unisim import Declared
from unisim.testing import FakeBackend, Fault

EVENTS = ("first", "second", "third")


class Keeper:
    """A class term that remembers in many ways; as an event it writes a drawn position, and may fail after that."""

    def __init__(self, cfg: TermCfg, env: ManagerBasedRlEnv) -> None:
        self.counts = torch.zeros(env.num_envs)
        self.history = torch.zeros(env.num_envs, 100, 400)
        self.total, self.seen, self.log = 0, {0}, [0]
        self.by_name: dict[str, Any] = {"level": torch.zeros(env.num_envs)}

    def __call__(self, env: ManagerBasedRlEnv, env_ids: torch.Tensor, tag: str) -> None:
        self.counts[env_ids] += 1.0
        self.history[env_ids] += 1.0
        self.total += 1
        self.seen.add(self.total)
        self.log.append(self.total)
        self.by_name["level"] = self.by_name["level"] + 1.0
        self.by_name[f"born {self.total}"] = 1
        data = env.scene["robot"].data
        position = data.joint_pos[env_ids] + env.rng.uniform(-1.0, 1.0, (env_ids.numel(), 2))
        data.write_joint_state(position, position, env_ids)
        if tag in calls:
            raise ArithmeticError(tag)

    def reset(self, env_ids: torch.Tensor) -> None:
        self.counts[env_ids] = 0.0
        if "reset" in calls:
            raise ArithmeticError("reset")


def keeping(make_env: MakeEnv, **options: Any) -> ManagerBasedRlEnv:
    events = {
        tag: EventTermCfg(
            func=Keeper,
            mode="reset",
            params={"tag": tag},
            min_step_count_between_reset=2 if tag == "third" else 0,
        )
        for tag in EVENTS
    }
    env = make_env(events=events, episode_length_s=0.1, terminations={"time_out": TIME_OUT}, **options)
    env.step(zeros(env))
    return env


def over(env: ManagerBasedRlEnv) -> torch.Tensor:
    return env.timed_out


TIME_OUT = TerminationTermCfg(func=over, time_out=True)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else bool(a == b)


@pytest.mark.parametrize("rows", [None, [2, 0]])
@pytest.mark.parametrize("tag", EVENTS)
def test_a_reset_that_an_event_rejects_names_it_and_leaves_all_as_a_twin(
    make_env: MakeEnv, tag: str, rows: list[int] | None
) -> None:
    env, twin = keeping(make_env, seed=3), keeping(make_env, seed=3)
    for each in (env, twin):  # so that the third event is due again
        each.step(zeros(each))
    calls.append(tag)
    message = f"ManagerBasedRlEnv.reset: events term '{tag}': ArithmeticError: {tag}; nothing was committed"
    with pytest.raises(ResetRejectedError, match=message):
        env.reset(None if rows is None else ids(*rows))
    calls.clear()
    assert same(env.state_dict(), twin.state_dict())
    for _ in range(50):
        one, two = env.step(zeros(env)), twin.step(zeros(twin))
        assert torch.equal(one.obs["obs"], two.obs["obs"])
    assert same(env.state_dict(), twin.state_dict())


def test_an_automatic_reset_that_an_event_rejects_keeps_its_rows_waiting(make_env: MakeEnv) -> None:
    env, twin = keeping(make_env, seed=3), keeping(make_env, seed=3)
    for each in (env, twin):
        each.step(zeros(each))
        each.step(zeros(each))
        each.step(zeros(each))
    calls.append("second")
    with pytest.raises(ResetRejectedError, match="events term 'second'") as caught:
        env.step(zeros(env))
    calls.clear()
    assert caught.value.transition.truncated.all()  # type: ignore[union-attr, attr-defined]
    with pytest.raises(RuntimeError, match=r"rows \[0, 1, 2\] wait for a reset"):
        env.step(zeros(env))
    env.reset()
    twin.step(zeros(twin))
    for _ in range(7):
        assert torch.equal(env.step(zeros(env)).obs["obs"], twin.step(zeros(twin)).obs["obs"])


def test_a_term_that_fails_while_its_rows_are_cleared_faults_the_environment(make_env: MakeEnv) -> None:
    env = keeping(make_env)
    calls.append("reset")
    with pytest.raises(ArithmeticError, match="reset"):
        env.reset(ids(1))
    assert env.faulted


def test_qa_031_a_rejected_reset_does_not_use_up_a_trigger(make_env: MakeEnv) -> None:
    env = keeping(make_env)
    env.step(zeros(env))
    counted = env.event_manager._terms["third"].instance
    assert isinstance(counted, Keeper)
    before = counted.total
    calls.append("third")
    with pytest.raises(ResetRejectedError):
        env.reset(ids(0))
    calls.clear()
    assert counted.total == before
    env.reset(ids(0))
    assert counted.total == before + 1


def test_qa_084_a_state_holds_what_managers_and_terms_remember(make_env: MakeEnv) -> None:
    env, other = keeping(make_env, seed=3), keeping(make_env, seed=4)
    state = env.state_dict()
    other.load_state_dict(state)
    assert same(other.state_dict(), state)
    assert {
        "rewards._sums",
        "events.first.counts",
        "events._last_trigger[third]",
        "actions.action",
    } <= set(state["values"])
    for _ in range(12):
        assert torch.equal(env.step(zeros(env)).obs["obs"], other.step(zeros(other)).obs["obs"])


def test_construction_leaves_class_terms_as_they_were_made(make_env: MakeEnv) -> None:
    env = make_env(
        events={"first": EventTermCfg(func=Keeper, mode="reset", params={"tag": "x"})}, reset=False
    )
    term = env.event_manager._terms["first"].instance
    assert isinstance(term, Keeper)
    assert (term.total, term.seen, term.log, set(term.by_name)) == (0, {0}, [0], {"level"})
    assert not term.history.any()


# ---------------------------------------------------------------- non-finite values


def bad_reward(env: ManagerBasedRlEnv) -> torch.Tensor:
    bad = (env.episode_length == 3) & (torch.arange(env.num_envs) == 1)
    return torch.where(bad, float("nan"), 1.0)


def bad_observation(env: ManagerBasedRlEnv) -> torch.Tensor:
    rows = torch.ones(env.num_envs, 2)
    rows[1, 1] = float("inf") if int(env.episode_length[1]) == 3 else 0.0
    return rows


def test_qa_070_an_observation_that_is_not_finite_names_its_term_and_column(make_env: MakeEnv) -> None:
    terms = {"probe": ObservationTermCfg(func=probe), "load": ObservationTermCfg(func=bad_observation)}
    env = make_env(observations={"obs": group(**terms)})
    for _ in range(2):
        env.step(zeros(env))
    with pytest.raises(NonFiniteError, match=r"obs is not finite at rows \[1\], columns \['load\[1\]'\]"):
        env.step(zeros(env))
    assert env.faulted


def test_a_clip_hides_no_value_that_is_not_a_number(make_env: MakeEnv) -> None:
    def setting(value: float) -> ObservationTermCfg:
        return ObservationTermCfg(func=constant, params={"value": value}, clip=(-1.0, 1.0))

    assert make_env(observations={"obs": group(load=setting(5.0))}).observations()["obs"].max() == 1.0
    calls.append("nan")
    env = make_env(observations={"obs": group(load=setting(5.0))})
    with pytest.raises(NonFiniteError, match=r"columns \['load\[0\]'\]"):
        env.step(zeros(env))


def constant(env: ManagerBasedRlEnv, value: float) -> torch.Tensor:
    return torch.full((env.num_envs, 1), float("nan") if "nan" in calls and env.step_counter else value)


def test_a_reward_that_is_not_finite_names_its_term(make_env: MakeEnv) -> None:
    rewards = {
        "good": RewardTermCfg(func=ones, weight=1.0),
        "bad": RewardTermCfg(func=bad_reward, weight=0.5),
    }
    env = make_env(rewards=rewards)
    for _ in range(2):
        env.step(zeros(env))
    with pytest.raises(NonFiniteError, match=r"reward is not finite at rows \[1\]; reward terms \['bad'\]"):
        env.step(zeros(env))


def test_qa_068_ending_the_row_keeps_the_log_and_the_other_rows_finite(make_env: MakeEnv) -> None:
    rewards = {
        "good": RewardTermCfg(func=ones, weight=1.0),
        "bad": RewardTermCfg(func=bad_reward, weight=0.5),
    }
    env = make_env(rewards=rewards, nan_guard=NanGuardCfg(policy="reset_row", max_dumps=0))
    for _ in range(2):
        env.step(zeros(env))
    state = env.step(zeros(env))
    assert state.info["nonfinite_rows"].tolist() == [False, True, False]
    assert state.reward[1] == 0.0
    assert torch.isfinite(state.reward).all()
    assert all(torch.isfinite(value.float()).all() for value in state.info["episode"].values())
    assert state.info["episode"]["Episode_Reward/bad/count"] == 1
    for _ in range(2):
        assert torch.isfinite(env.step(zeros(env)).reward).all()


def test_a_dump_of_a_task_made_of_terms_replays_exactly(tmp_path: Path) -> None:
    terms = {
        "position": ObservationTermCfg(func=mdp.joint_pos),
        "load": ObservationTermCfg(func=bad_observation),
    }
    guard = NanGuardCfg(dump_dir=str(tmp_path))
    events = {"mass": EventTermCfg(func=heavier, mode="reset", params={"factor": 1.1})}
    cfg = mujoco_cfg(observations={"obs": group(**terms)}, nan_guard=guard, events=events)
    with ManagerBasedRlEnv(cfg) as env:
        env.reset()
        for _ in range(2):
            env.step(zeros(env))
        with pytest.raises(NonFiniteError, match="dump written to"):
            env.step(zeros(env))
    (path,) = tmp_path.iterdir()
    report = replay_dump(path)
    assert report.exact
    assert report.rows == (1,)


# ---------------------------------------------------------------- declared writes


@writes("body_mass")
def heavier(env: ManagerBasedRlEnv, env_ids: torch.Tensor, factor: float) -> None:
    data = env.scene["robot"].data
    data.write_model("body_mass", data.model_values("body_mass", env_ids) * factor, env_ids)


def undeclared(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    env.scene["robot"].data.write_model("body_mass", torch.ones(env_ids.numel(), 1), env_ids)


@writes("body_mass")
class Heavier:
    """Declares its writes on the class."""

    def __init__(self, cfg: EventTermCfg, env: ManagerBasedRlEnv) -> None:
        pass

    def __call__(self, env: ManagerBasedRlEnv, env_ids: torch.Tensor, factor: float) -> None:
        heavier(env, env_ids, factor)


class HeavierByCall:
    """Declares its writes on the call."""

    def __init__(self, cfg: EventTermCfg, env: ManagerBasedRlEnv) -> None:
        pass

    @writes("body_mass")
    def __call__(self, env: ManagerBasedRlEnv, env_ids: torch.Tensor, factor: float) -> None:
        heavier(env, env_ids, factor)


@pytest.mark.parametrize("func", [heavier, Heavier, HeavierByCall])
def test_qa_052_a_declared_field_is_randomised_from_its_stored_value_on_mujoco(func: Any) -> None:
    events = {"mass": EventTermCfg(func=func, mode="reset", params={"factor": 1.1})}
    with ManagerBasedRlEnv(mujoco_cfg(events=events)) as env:
        for _ in range(5):
            env.reset()
        masses = env.scene["robot"].data.model_values("body_mass", torch.arange(4))
        torch.testing.assert_close(masses, torch.tensor([[1.1, 0.11]]).expand(4, 2))


def test_events_on_one_field_compose_in_the_order_of_declaration() -> None:
    events = {
        name: EventTermCfg(func=heavier, mode="reset", params={"factor": factor})
        for name, factor in (("twice", 2.0), ("thrice", 3.0))
    }
    with ManagerBasedRlEnv(mujoco_cfg(events=events)) as env:
        env.reset()
        env.reset(ids(1))
        masses = env.scene["robot"].data.model_values("body_mass", torch.arange(4))
        torch.testing.assert_close(masses[:, 0], torch.full((4,), 6.0))


def test_an_undeclared_write_is_named_at_construction_with_the_remedy() -> None:
    message = (
        r"events term 'mass': RuntimeError: .*'body_mass' was not declared .* put @writes\('body_mass'\)"
    )
    with pytest.raises(ConfigError, match=message):
        ManagerBasedRlEnv(mujoco_cfg(events={"mass": EventTermCfg(func=undeclared, mode="reset")}))


def test_a_backend_that_rejects_leaves_the_managers_as_they_were() -> None:
    def made(faults: tuple[Fault, ...]) -> ManagerBasedRlEnv:
        cfg: ManagerBasedRlEnvCfg = base_cfg(
            events={"mass": EventTermCfg(func=heavier, mode="reset", params={"factor": 2.0})}
        )
        declared = Declared(model_fields=("body_mass",))
        backend = FakeBackend(layout_of(), 3, declared=declared, faults=faults)
        return ManagerBasedRlEnv(cfg, backend=backend)

    with made((Fault("before_commit", at=1),)) as env, made(()) as twin:
        for each in (env, twin):
            each.reset()
            each.step(zeros(each))
        with pytest.raises(ResetRejectedError, match="injected"):
            env.reset(ids(1))
        assert same(env.state_dict()["values"], twin.state_dict()["values"])


def test_weight_zero_terms_take_part_in_the_dry_first_reset(make_env: MakeEnv) -> None:
    make_env(rewards={"off": RewardTermCfg(func=noted_ones, weight=0.0)}, reset=False)
    assert calls == ["ones", "ones"]
