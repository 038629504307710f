"""Default arguments of terms are put back with a rejected reset, and refused where they cannot be."""

from __future__ import annotations

import random

import pytest
import torch
from manager_support import MakeEnv, ids

from unilab_core import ConfigError, ResetRejectedError
from unilab_managers import EventTermCfg, ManagerBasedRlEnv

TABLE, LOG, GENERATOR, FAILS = torch.zeros(4), [0], torch.Generator(), {"now": False}
SOURCE = random.Random(0)


def keeps(
    env: ManagerBasedRlEnv,
    env_ids: torch.Tensor,
    table: torch.Tensor = TABLE,
    log: list[int] = LOG,
    generator: torch.Generator = GENERATOR,
) -> None:
    table += torch.rand(4, generator=generator)
    log.append(len(log))
    if FAILS["now"]:
        raise KeyError("later")


def draws(env: ManagerBasedRlEnv, env_ids: torch.Tensor, source: random.Random = SOURCE) -> None:
    source.random()


def test_what_a_default_argument_holds_is_put_back(
    make_env: MakeEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = make_env(3, events={"keeps": EventTermCfg(func=keeps, mode="reset")})
    env.reset()
    before = TABLE.clone(), list(LOG), GENERATOR.get_state()
    assert len(LOG) > 1
    monkeypatch.setitem(FAILS, "now", True)
    with pytest.raises(ResetRejectedError, match="events term 'keeps'"):
        env.reset(ids(0, 2))
    assert torch.equal(TABLE, before[0])
    assert before[1] == LOG
    assert torch.equal(GENERATOR.get_state(), before[2])


def test_a_default_that_draws_from_a_generator_of_python_is_refused(make_env: MakeEnv) -> None:
    with pytest.raises(ConfigError, match="draw from env.rng instead"):
        make_env(3, events={"draws": EventTermCfg(func=draws, mode="reset")})
