"""Random interleavings of selectors, transaction, rejections, step writes and states against plain numbers.

The variable `UNILAB_EXAMPLES` sets how many interleavings are tried, for example 5000 before a release.
"""

from __future__ import annotations

import os

import pytest
import torch
from core_support import ScriptedEnv
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from twins import differences

from unilab_core import ResetRejectedError
from unilab_core.reset_selectors import (
    ResetMaskBuffer,
    reset_env_ids_mask,
    resolve_reset_env_ids,
    resolve_reset_mask,
)
from unisim import Declared
from unisim.testing import FakeBackend, make_layout

PLACES = ("_on_episodes_end", "_stage_reset", "_before_commit")


class Ring:
    """A class term with a ring of frames (N, L, D), a cursor per row and plain counters."""

    def __init__(self, num_envs: int) -> None:
        self.frames = torch.zeros(num_envs, 3, 2)
        self.cursor = torch.zeros(num_envs, dtype=torch.int64)
        self.resets, self.log = 0, [0]

    def clear(self, ids: torch.Tensor) -> None:
        self.frames[ids] = 0.0
        self.cursor[ids] = 0
        self.resets += 1
        self.log.append(ids.numel())

    def push(self, frame: torch.Tensor) -> None:
        rows = torch.arange(len(self.cursor))
        self.frames[rows, self.cursor % 3] = frame
        self.cursor += 1


class RingEnv(ScriptedEnv):
    """Resets draw a position and a mass; a step pushes a frame; the hook that `inject` names fails after its work."""

    def _build(self) -> None:
        super()._build()
        self.ring = Ring(self.num_envs)

    def _on_episodes_end(self, ids: torch.Tensor) -> None:
        self.ring.clear(ids)
        super()._on_episodes_end(ids)

    def _stage_reset(self, ids: torch.Tensor) -> None:
        data = self.scene["robot"].data
        position = self.rng.integers(0, 100, (ids.numel(), 1)).float()
        data.write_joint_state(position, torch.zeros_like(position), ids, slice(0, 1))
        data.write_model("body_mass", data.model_values("body_mass", ids) + position, ids)
        super()._stage_reset(ids)

    def _after_step(self) -> None:
        self.ring.push(torch.stack([self.reward, self.episode_length.float()], dim=1))

    @property
    def reward(self) -> torch.Tensor:
        return self._reward


class RowsMachine(RuleBasedStateMachine):
    """An environment beside its rows as plain numbers; draws are predicted from a generator of the same seed."""

    @initialize(num_envs=st.integers(1, 5), seed=st.integers(0, 3))
    def build(self, num_envs, seed):
        layout = make_layout()
        backend = FakeBackend(layout, num_envs, declared=Declared(model_fields=("body_mass",)))
        self.env = RingEnv(num_envs, backend=backend, seed=seed)
        self.n = num_envs
        self.generator = torch.Generator().manual_seed(seed)
        self.rows = [
            {"q": 0.0, "mass": 1.0, "age": 0, "frames": [], "pending": True} for _ in range(num_envs)
        ]
        self.resets, self.log, self.steps = 0, [0], 0
        self.saved = None

    def teardown(self):
        if hasattr(self, "env"):
            self.env.close()

    def restart(self, ids):
        draws = torch.randint(0, 100, (len(ids), 1), generator=self.generator).flatten().tolist()
        for row, draw in zip(sorted(ids), draws, strict=True):
            self.rows[row] = {"q": float(draw), "mass": 1.0 + draw, "age": 0, "frames": [], "pending": False}
        self.resets += 1
        self.log.append(len(ids))

    def ids(self, data):
        return data.draw(st.lists(st.integers(0, self.n - 1), unique=True))

    @rule(data=st.data())
    def selectors_agree(self, data):
        ids = self.ids(data)
        start, stop, step = (data.draw(st.none() | st.integers(-6, 6)) for _ in range(3))
        options = {"num_envs": self.n, "device": "cpu", "owner": "machine"}
        assert resolve_reset_env_ids(torch.tensor(ids, dtype=torch.int32), **options).tolist() == ids
        expected = [i in ids for i in range(self.n)]
        assert (
            reset_env_ids_mask(torch.tensor(ids, dtype=torch.int64), num_envs=self.n, device="cpu").tolist()
            == expected
        )
        assert (
            ResetMaskBuffer(self.n, "cpu").from_ids(torch.tensor(ids, dtype=torch.int64)).tolist() == expected
        )
        assert resolve_reset_mask(torch.tensor(ids, dtype=torch.int64), **options).tolist() == expected
        if step is None or step > 0:
            part = slice(start, stop, step)
            assert resolve_reset_env_ids(part, **options).tolist() == list(range(self.n))[part]
        with pytest.raises(ValueError, match="machine"):
            resolve_reset_env_ids(torch.tensor([*ids, self.n]), **options)

    @rule(data=st.data())
    def reset(self, data):
        ids = data.draw(st.none() | st.just("some"))
        rows = list(range(self.n)) if ids is None else self.ids(data)
        obs, _ = self.env.reset(None if ids is None else torch.tensor(rows, dtype=torch.int64))
        if rows:
            self.restart(rows)
        assert obs["obs"][:, 1].tolist() == [self.rows[row]["q"] for row in rows]

    @rule(data=st.data(), place=st.sampled_from(PLACES))
    def rejected_reset(self, data, place):
        rows = self.ids(data)
        before = self.env.state_dict()

        def fail(ids):
            self.env.ring.push(torch.ones(self.n, 2))
            raise ArithmeticError

        self.env.inject[place] = fail
        try:
            if rows:
                with pytest.raises(ResetRejectedError):
                    self.env.reset(torch.tensor(rows))
            else:
                self.env.reset(torch.tensor(rows, dtype=torch.int64))
        finally:
            del self.env.inject[place]
        assert differences(before, self.env.state_dict()) == []

    @rule(data=st.data())
    def step(self, data):
        if waiting := [i for i, row in enumerate(self.rows) if row["pending"]]:
            with pytest.raises(RuntimeError, match=str(waiting[0])):
                self.env.step(torch.zeros(self.n, 1))
            return
        ends, writes = self.ids(data), [self.ids(data) for _ in range(data.draw(st.integers(0, 2)))]
        rejects = bool(ends) and data.draw(st.booleans())

        def advance():
            for value, ids in enumerate(writes):
                rows = torch.tensor(ids, dtype=torch.int64)
                state = self.env.scene["robot"].data
                new = state.joint_pos[rows, :1] + 10.0 * (value + 1)
                state.write_joint_state(new, torch.zeros(len(ids), 1), rows, slice(0, 1))

        def fail(ids):
            raise ArithmeticError

        self.steps += 1
        self.env.terminate[self.steps] = ends
        self.env.inject["_advance"] = advance
        if rejects:
            self.env.inject["_before_commit"] = fail
            with pytest.raises(ResetRejectedError) as caught:
                self.env.step(torch.zeros(self.n, 1))
            del self.env.inject["_before_commit"]
            state = caught.value.transition
        else:
            state = self.env.step(torch.zeros(self.n, 1))
        for i, row in enumerate(self.rows):
            row["age"] += 1
            row["frames"].append([float(row["age"])] * 2)
            for value, ids in enumerate(writes):
                row["q"] += 10.0 * (value + 1) * (i in ids)
        finals = [row["q"] for row in self.rows]
        if ends and rejects:
            for row in ends:
                self.rows[row]["pending"] = True
        elif ends:
            self.restart(ends)
        assert state.terminated.tolist() == [i in ends for i in range(self.n)]
        if ends:
            assert state.final_observation["obs"][:, 1].tolist() == finals
        assert state.obs["obs"][:, 1].tolist() == [row["q"] for row in self.rows]

    @rule()
    def save(self):
        self.saved = (self.env.state_dict(), [dict(r, frames=list(r["frames"])) for r in self.rows],
                      self.generator.get_state(), self.resets, list(self.log), self.steps)  # fmt: skip

    @rule()
    def load(self):
        if self.saved is not None:
            state, rows, generator, self.resets, log, self.steps = self.saved
            self.env.load_state_dict(state)
            self.rows = [dict(r, frames=list(r["frames"])) for r in rows]
            self.generator.set_state(generator)
            self.log = list(log)

    @invariant()
    def agrees(self):
        if not hasattr(self, "env"):
            return
        snapshot = self.env.state_dict()["backend"]
        assert snapshot["value:qpos"][:, 0].tolist() == [row["q"] for row in self.rows]
        assert snapshot["field:body_mass"][:, 1].tolist() == [row["mass"] for row in self.rows]
        ring = self.env.ring
        assert self.env.episode_length.tolist() == [row["age"] for row in self.rows]
        assert (ring.resets, ring.log) == (self.resets, self.log)
        assert ring.cursor.tolist() == [len(row["frames"]) for row in self.rows]
        for i, row in enumerate(self.rows):
            for k, frame in list(enumerate(row["frames"]))[-3:]:
                assert ring.frames[i, k % 3].tolist() == frame
        assert torch.equal(self.env.rng.get_state(), self.generator.get_state())


TestRows = RowsMachine.TestCase
TestRows.settings = settings(
    settings.get_profile("unilab"),
    max_examples=int(os.environ.get("UNILAB_EXAMPLES", "100")),
    stateful_step_count=20,
)
