"""Observation settings: each field has an effect, columns have names, and what the pipeline costs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from manager_support import Feed, MakeEnv, ids, layout_of, probe, with_default, zeros
from torch.utils._python_dispatch import TorchDispatchMode

from unilab_core import ConfigError, SceneEntityCfg
from unilab_managers import ManagerBasedRlEnv, ObservationGroupCfg, ObservationTermCfg, mdp
from unilab_managers.noise import AdditiveBiasNoiseCfg, ConstantNoiseCfg, UniformNoiseCfg


def shifted(env: ManagerBasedRlEnv, by: float = 0.0) -> torch.Tensor:
    """Returns the sensor and something, (N, 3)."""
    return env.scene.sensor("probe") + by


def episode(make_env: MakeEnv, cfg: ObservationGroupCfg) -> torch.Tensor:
    """Returns what twelve steps with a partial reset show; the same for the same config."""
    feed = Feed()
    env = make_env(4, feed=feed, seed=1, observations={"obs": cfg})
    shown = [env.observations()["obs"]]
    for step in range(1, 13):
        feed.probe([[step / 10 + row, step / 5, -step / 3] for row in range(4)])
        shown.append(env.step(zeros(env)).obs["obs"].clone())
        if step == 6:
            env.reset(ids(1, 2))
    return torch.cat(shown)


LAGS = {"delay_max_lag": 4}
TERM_FIELDS: dict[str, tuple[dict[str, Any], Any]] = {
    "func": ({}, shifted),
    "params": ({"func": shifted}, {"by": 1.0}),
    "noise": ({}, UniformNoiseCfg()),
    "clip": ({}, (-1.0, 1.0)),
    "scale": ({}, 2.0),
    "delay_min_lag": (LAGS, 4),
    "delay_max_lag": ({}, 2),
    "delay_per_env": (LAGS, False),
    "delay_hold_prob": (LAGS, 1.0),
    "delay_update_period": (LAGS, 3),
    "delay_per_env_phase": (LAGS | {"delay_update_period": 4}, False),
    "history_length": ({}, 2),
}


@pytest.mark.parametrize("field", ObservationTermCfg.model_fields)
def test_every_field_of_a_term_changes_what_is_shown(make_env: MakeEnv, field: str) -> None:
    base, value = TERM_FIELDS[field]
    terms = [ObservationTermCfg(**({"func": probe} | base | change)) for change in ({}, {}, {field: value})]
    if field == "func":
        terms[2] = ObservationTermCfg(func=shifted, params={"by": 0.25})
    first, again, changed = (episode(make_env, ObservationGroupCfg(terms={"t": term})) for term in terms)
    assert torch.equal(first, again)
    assert changed.shape != first.shape or not torch.equal(changed, first)


NOISY = ObservationTermCfg(func=probe, noise=ConstantNoiseCfg(bias=1.0), history_length=2)
GROUP_FIELDS: dict[str, Any] = {
    "terms": {"b": NOISY},
    "enable_corruption": False,
    "history_length": 0,
    "flatten_history_dim": False,
}


@pytest.mark.parametrize("field", ObservationGroupCfg.model_fields)
def test_every_field_of_a_group_changes_what_is_shown(make_env: MakeEnv, field: str) -> None:
    cfg = ObservationGroupCfg(terms={"a": NOISY, "b": NOISY})
    first = episode(make_env, cfg)
    assert torch.equal(episode(make_env, cfg), first)
    changed = episode(make_env, cfg.model_copy(update={field: GROUP_FIELDS[field]}))
    assert changed.shape != first.shape or not torch.equal(changed, first)


# ---------------------------------------------------------------- names


def tagged(env: ManagerBasedRlEnv, tags: tuple[str, ...] = ("x", "y", "z")) -> torch.Tensor:
    """Returns the sensor and calls its columns by its parameter."""
    return env.scene.sensor("probe")


def tags_of(env: ManagerBasedRlEnv, tags: tuple[str, ...] = ("x", "y", "z")) -> tuple[str, ...]:
    """Returns the names of the columns of `tagged`."""
    return tags


tagged.__unilab_columns__ = tags_of  # type: ignore[attr-defined]
tagged.__unilab_unit__ = "m"  # type: ignore[attr-defined]


def test_columns_have_the_names_that_the_term_gives_them_and_its_unit(make_env: MakeEnv) -> None:
    terms = {
        "place": ObservationTermCfg(func=tagged, history_length=2),
        "other": ObservationTermCfg(func=tagged, params={"tags": ("a", "b", "c")}),
        "plain": ObservationTermCfg(func=probe),
    }
    manager = make_env(observations={"obs": ObservationGroupCfg(terms=terms)}).observation_manager
    assert manager.labels() == {
        "obs": (
            *("place[x][t-1]", "place[y][t-1]", "place[z][t-1]", "place[x][t-0]", "place[y][t-0]", "place[z][t-0]"),
            *("other[a]", "other[b]", "other[c]", "plain[0]", "plain[1]", "plain[2]"),
        )
    }  # fmt: skip
    assert manager.units() == {"obs": ("m",) * 9 + ("",) * 3}


def test_joint_columns_carry_the_names_of_their_joints(make_env: MakeEnv) -> None:
    entity = SceneEntityCfg(joint_names=("b", "a"), preserve_order=True)
    term = ObservationTermCfg(func=mdp.joint_pos, params={"asset_cfg": entity})
    env = make_env(
        layout=with_default(layout_of("a", "b"), 0.0, 0.0),
        observations={"obs": ObservationGroupCfg(terms={"joints": term})},
    )
    assert env.observation_manager.labels() == {"obs": ("joints[b]", "joints[a]")}


def test_names_that_do_not_fit_the_columns_are_refused(make_env: MakeEnv) -> None:
    term = ObservationTermCfg(func=tagged, params={"tags": ("x", "y")})
    message = r"observations.obs term 'place' names 2 columns \('x', 'y'\), but returned 3"
    with pytest.raises(ConfigError, match=message):
        make_env(observations={"obs": ObservationGroupCfg(terms={"place": term})})


def test_the_settings_of_a_term_are_what_is_in_force(make_env: MakeEnv) -> None:
    bias = AdditiveBiasNoiseCfg(bias=ConstantNoiseCfg(bias=0.5))
    term = ObservationTermCfg(
        func=tagged, noise=bias, clip=(-1.0, 1.0), scale=2.0, delay_max_lag=3, history_length=4
    )
    groups = {
        "obs": ObservationGroupCfg(terms={"place": term}),
        "critic": ObservationGroupCfg(terms={"place": term}, enable_corruption=False, history_length=0),
    }
    manager = make_env(observations=groups).observation_manager
    shown = manager.settings("obs", "place")
    in_force = {"params": {"tags": ["x", "y", "z"]}, "width": 3, "unit": "m"}
    assert shown == term.to_data() | in_force
    assert shown["noise"]["bias"]["bias"] == 0.5
    assert manager.settings("critic", "place") == shown | {"noise": None, "history_length": 1}
    manager.set_params("obs/place", tags=("a", "b", "c"))
    assert manager.settings("obs", "place")["params"] == {"tags": ["a", "b", "c"]}
    with pytest.raises(KeyError, match="observations: unknown term 'obs/plaec'; did you mean 'obs/place'"):
        manager.settings("obs", "plaec")


# ---------------------------------------------------------------- what it costs


class Operators(TorchDispatchMode):
    """Notes operators, views included."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func._schema.name.removeprefix("aten::"))
        return func(*args, **(kwargs or {}))


SYNCHRONISING = {"_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "item"}


def cost(make_env: MakeEnv, cfg: ObservationGroupCfg) -> int:
    """Returns how many operators a step takes for a group beyond those of its terms; none of them waits."""
    env = make_env(observations={"obs": cfg})
    env.observation_manager.update()
    with Operators() as counted:
        env.observation_manager.compute(None)
    with Operators() as own:
        for _ in cfg.terms:
            env.scene.sensor("probe")
    assert not SYNCHRONISING & set(counted.names)
    return len(counted.names) - len(own.names)


UNIFORM = UniformNoiseCfg(n_min=-0.5, n_max=0.5)
COSTS = [
    ("nothing", {}, 1, 1),
    ("scale", {"scale": 2.0}, 2, 2),
    ("uniform noise and scale", {"noise": UNIFORM, "scale": 2.0}, 5, 5),
    ("noise, clip, scale", {"noise": UNIFORM, "clip": (-1.0, 1.0), "scale": 2.0}, 6, 6),
    ("a fixed delay", {"delay_min_lag": 2, "delay_max_lag": 2}, 5, 13),
    ("a random delay", {"delay_max_lag": 2}, 9, 25),
    ("a random delay with a period, held at times", LAGS | {"delay_update_period": 2, "delay_hold_prob": 0.5}, 13, 37),
    ("a history", {"history_length": 5}, 6, 6),
]  # fmt: skip


@pytest.mark.parametrize(("name", "settings", "one", "three"), COSTS, ids=[name for name, *_ in COSTS])
def test_a_step_takes_few_operators(
    make_env: MakeEnv, name: str, settings: dict[str, Any], one: int, three: int
) -> None:
    term = ObservationTermCfg(func=probe, **settings)
    found = [cost(make_env, ObservationGroupCfg(terms=dict.fromkeys("abc"[:n], term))) for n in (1, 3)]
    print(
        f"{name}: {found[0]} operators for one term, {found[1]} for three, the joining of the group included"
    )
    assert found[0] <= one
    assert found[1] <= three


def test_a_step_adds_no_tensor_to_what_is_remembered(make_env: MakeEnv) -> None:
    term = ObservationTermCfg(func=probe, noise=UNIFORM, delay_max_lag=2, history_length=3)
    env = make_env(observations={"obs": ObservationGroupCfg(terms={"t": term, "u": NOISY})})

    def storages() -> dict[str, Any]:
        return {k: v.shape for k, v in env.state_dict()["values"].items() if isinstance(v, torch.Tensor)}

    before = storages()
    for _ in range(10):
        env.step(zeros(env))
    assert storages() == before
