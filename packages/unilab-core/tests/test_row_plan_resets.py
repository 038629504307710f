"""A rejected reset puts back what was there, whatever appeared, went or was refused since the walk before it."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from core_support import ScriptedEnv, steps
from object_graphs import ROW, Box, N, registry_of
from twins import Helper, Tripped

from unilab_core import ConfigError, ResetRejectedError


@pytest.mark.parametrize(
    ("between", "is_as_before"),
    [
        (lambda env: setattr(env, "late", torch.zeros(N)), lambda env: not env.late.any()),
        (lambda env: setattr(env, "late", {"rows": torch.zeros(N)}), lambda env: not env.late["rows"].any()),
        (lambda env: setattr(env, "late", Helper()), lambda env: not env.late.rows.any()),
        (lambda env: env.log.append(torch.zeros(N)), lambda env: not env.log[0].any()),
        (lambda env: env.term.__dict__.pop("rows"), lambda env: not hasattr(env.term, "rows")),
        (lambda env: env.log.extend([1, 2]), lambda env: env.log == [1, 2]),
    ],
)
def test_what_appeared_or_went_between_resets_is_as_before_after_a_rejected_one(between, is_as_before):
    with ScriptedEnv(N) as env:
        env.term, env.log = Helper(), []
        env.reset()
        between(env)

        def fail(ids):
            for held in (getattr(env, "late", None), env.log, env.term):
                for value in held.values() if isinstance(held, dict) else [held, *vars_of(held)]:
                    if isinstance(value, torch.Tensor):
                        value.add_(1.0)
            env.log.append(3)
            env.term.rows = torch.ones(N)
            raise Tripped

        env.inject["_stage_reset"] = fail
        for _ in range(2):
            with pytest.raises(ResetRejectedError):
                env.reset(ROW)
            assert is_as_before(env)


def vars_of(held: object) -> list[Any]:
    return (
        list(vars(held).values())
        if isinstance(held, Helper)
        else list(held)
        if isinstance(held, list)
        else []
    )


def test_a_reset_in_an_automatic_step_is_taken_back_with_what_the_steps_before_it_put_in_place():
    with ScriptedEnv(N, terminate={5: [1]}) as env:
        env.reset()
        env.inject["_after_step"] = lambda: setattr(env, "kept", torch.full((N,), float(env.step_counter)))
        steps(env, 4)

        def fail(ids):
            env.kept.add_(1.0)
            raise Tripped

        env.inject["_stage_reset"] = fail
        with pytest.raises(ResetRejectedError):
            steps(env, 1)
        assert env.kept.tolist() == [5.0] * N


# ---------------------------------------------------------------- what is refused later


@pytest.mark.parametrize("put", ["attribute", "item", "instead of a number"])
def test_a_foreign_generator_put_into_a_term_later_is_refused_by_every_reset_until_it_goes(put):
    with ScriptedEnv(N) as env:
        env.term, env.log = Helper(), [1]
        env.reset()
        generator = random.Random(1)
        holder, key = (
            (env.log, 0) if put == "item" else (vars(env.term), "count" if "number" in put else "late")
        )
        before = holder[key] if put != "attribute" else None
        holder[key] = generator
        for _ in range(2):
            with pytest.raises(
                ConfigError, match=r"(term.late|term.count|log\[0\]) is a Random, whose draws"
            ):
                env.reset(ROW)
        if put == "attribute":
            del holder[key]
        else:
            holder[key] = before
        env.reset(ROW)
        assert not env.faulted


def test_a_tensor_replaced_before_a_refused_save_is_put_back_by_the_next_one():
    root = Box()
    root.tensor, root.late = torch.zeros(N), 0
    registry = registry_of(root)
    registry.save(ROW)
    root.tensor, root.late = torch.zeros(N), random.Random(1)
    with pytest.raises(ConfigError, match="term.late is a Random"):
        registry.save(ROW)
    root.late = 0
    saved = registry.save(ROW)
    root.tensor.add_(1.0)
    registry.restore(saved)
    assert not root.tensor.any()


def test_an_array_that_became_writable_is_refused():
    numpy = pytest.importorskip("numpy")
    with ScriptedEnv(N) as env:
        env.table = numpy.zeros(3)
        env.table.flags.writeable = False
        env.reset()
        env.table.flags.writeable = True
        with pytest.raises(ConfigError, match="table is a ndarray, whose content"):
            env.reset(ROW)
