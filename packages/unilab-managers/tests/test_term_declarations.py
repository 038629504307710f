"""What a term's class, its bases and its defaults declare is known before the backend is made."""

from typing import Any

import pytest
import torch
from manager_support import MakeEnv, base_cfg

from unilab_core import ConfigError, SceneEntityCfg, writes
from unilab_managers import EventTermCfg, ManagerBasedRlEnv, applies_wrench, mdp
from unilab_managers.declarations import declared_by


class Heavier:
    """Declares what it writes on `__call__`."""

    def __init__(self, cfg: EventTermCfg, env: ManagerBasedRlEnv) -> None:
        pass

    @writes("body_mass")
    def __call__(self, env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
        data = env.scene["robot"].data
        data.write_model("body_mass", data.model_values("body_mass", env_ids) * 2.0, env_ids)


class StillHeavier(Heavier):
    """Inherits the call, and what it declares."""


def test_a_write_that_an_inherited_call_declares_is_declared() -> None:
    cfg = base_cfg(events={"mass": EventTermCfg(func=StillHeavier, mode="reset")})
    assert declared_by(cfg).model_fields == ("body_mass",)


@applies_wrench
def nudge(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    asset_cfg: SceneEntityCfg = SceneEntityCfg(body_names=("base",)),  # noqa: B008 - frozen
) -> None:
    """Names its bodies by default."""


def test_bodies_that_a_default_names_are_declared() -> None:
    cfg = base_cfg(events={"nudge": EventTermCfg(func=nudge, mode="step")})
    assert declared_by(cfg).wrench_bodies == ("robot/base",)


@pytest.mark.parametrize("mode", ["interval", "reset", "startup"])
def test_a_term_that_counts_down_by_itself_is_for_every_step(make_env: MakeEnv, mode: Any) -> None:
    params = {
        "asset_cfg": SceneEntityCfg(body_names=("base",)),
        "force_range": (0.0, 1.0),
        "torque_range": (0.0, 0.0),
        "duration_range_s": (0.1, 0.1),
        "cooldown_range_s": (0.1, 0.1),
    }
    timer = {"interval_range_s": (1.0, 1.0)} if mode == "interval" else {}
    push = EventTermCfg(func=mdp.apply_body_wrench, mode=mode, params=params, **timer)
    message = (
        f"events term 'push': apply_body_wrench counts down by itself.*mode is '{mode}', expected 'step'"
    )
    with pytest.raises(ConfigError, match=message):
        make_env(events={"push": push}, layout=None)
