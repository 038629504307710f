"""What a walk found serves later saves: whatever changed in between, a save is put back, and few changes walk anew."""

from __future__ import annotations

from collections import deque

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from object_graphs import ROW, Box, N, Play, picture, reachable, registry_of
from twins import Helper, Mark, Slotted
from velocity import VelocityEnv, actions_of, fake_backend

from unilab_core.row_state import RowStateRegistry


@given(data=st.data())
def test_whatever_changed_between_saves_a_save_is_put_back(data):
    root = Box()
    root.a, root.b = Box(), {"a": torch.zeros(N)}
    play, registry = Play(root, data.draw), registry_of(root)
    for _ in range(data.draw(st.integers(2, 4))):
        for _ in range(data.draw(st.integers(0, 4))):
            play.act()
        before = picture(root)
        play.alive.extend(reachable(root))
        saved = registry.save(ROW)
        for _ in range(data.draw(st.integers(0, 4))):
            play.act(moves_memory=False)  # which is no part of what is put back
        registry.restore(saved)
        assert picture(root) == before


# ---------------------------------------------------------------- what takes a walk, and what does not


def walked(registry: RowStateRegistry) -> int:
    before = registry.walks
    registry.save(ROW)
    return registry.walks - before


def test_a_second_save_of_what_did_not_change_walks_nothing():
    root = Box()
    root.helper, root.rows, root.log = Helper(inner=Slotted(N)), [torch.zeros(N)], {"a": 1}
    registry = registry_of(root)
    assert [walked(registry) for _ in range(3)] == [1, 0, 0]


@pytest.mark.parametrize(
    "change",
    [
        lambda root: setattr(root, "count", root.count + 1),
        lambda root: setattr(root, "count", None),
        lambda root: setattr(root, "mark", Mark(2, "b")),
        lambda root: root.log.update(a=2),
        lambda root: root.rows[0].add_(1.0),
        lambda root: root.seen.add(3),
        lambda root: setattr(root, "tensor", torch.ones(N)),
        lambda root: root.rows.__setitem__(0, torch.ones(5)),
        lambda root: root.last.append(torch.ones(N)),
        lambda root: setattr(root, "log", {"a": 2}),
        lambda root: setattr(root, "log", {}),
        lambda root: setattr(root, "seen", {9}),
        lambda root: setattr(root.tensor, "data", torch.ones(7)),
        lambda root: root.tensor.resize_(2),
    ],
)
def test_counters_and_tensors_that_took_the_place_of_others_are_put_back_without_a_walk(change):
    root = Box()
    root.count, root.mark, root.log, root.seen = 0, Mark(0, "a"), {"a": 1}, {1}
    root.tensor, root.rows = torch.zeros(N), [torch.zeros(N)]
    root.last = deque([torch.zeros(N), torch.zeros(N)], maxlen=2)
    registry = registry_of(root)
    registry.save(ROW)
    kept = reachable(root)
    change(root)
    before = picture(root)
    saved = registry.save(ROW)
    assert registry.walks == 1
    for thing in reachable(root):
        if isinstance(thing, torch.Tensor):
            thing.add_(1.0)
        elif isinstance(thing, dict | set):
            thing.clear()
    root.count, root.mark, root.tensor = 5, Mark(5, "z"), torch.ones(1)
    root.rows.append(torch.ones(1))
    registry.restore(saved)
    assert picture(root) == before
    del kept


@pytest.mark.parametrize(
    "change",
    [
        lambda root: setattr(root, "born", 1),
        lambda root: delattr(root, "count"),
        lambda root: setattr(root, "count", torch.zeros(N)),
        lambda root: setattr(root, "helper", Helper()),
        lambda root: root.log.update(b=torch.zeros(N)),
        lambda root: setattr(root, "log", {"a": torch.zeros(N)}),
        lambda root: setattr(root, "log", root.other),
        lambda root: setattr(root, "filled", {}),
        lambda root: root.rows.pop(),
        lambda root: setattr(root.helper, "__class__", Box),
    ],
)
def test_what_has_another_structure_takes_one_walk(change):
    root = Box()
    root.count, root.log, root.other, root.rows, root.helper = 0, {}, {}, [torch.zeros(N)], Helper()
    root.filled = {"a": torch.zeros(N)}
    registry = registry_of(root)
    registry.save(ROW)
    change(root)
    assert [walked(registry), walked(registry)] == [1, 0]


def test_a_container_that_someone_else_still_holds_is_put_back_after_one_holder_let_go():
    root = Box()
    root.log = root.handed_out = {"a": 1}
    registry = registry_of(root)
    registry.save(ROW)
    root.log = {}
    saved = registry.save(ROW)
    root.handed_out["a"] = 2
    root.log["b"] = 3
    registry.restore(saved)
    assert (root.log, root.handed_out) == ({}, {"a": 1})


def test_one_of_two_keys_that_hold_the_same_tensor_is_replaced():
    root = Box()
    root.first = root.second = torch.zeros(N)
    registry = registry_of(root)
    registry.save(ROW)
    old, new = root.first, torch.zeros(N)
    root.second = new
    saved = registry.save(ROW)
    old.add_(1.0)
    new.add_(2.0)
    registry.restore(saved)
    assert root.first is old
    assert root.second is new
    assert not old.any()
    assert not new.any()


def test_steps_and_resets_of_an_environment_walk_once():
    with VelocityEnv(fake_backend(6), seed=4) as env:
        env.reset()
        generator = torch.Generator().manual_seed(0)
        for _ in range(5):
            env.step(actions_of(env, generator))
            env.reset(torch.tensor([0, 4]))
        before = env._registry.walks
        for _ in range(100):
            env.step(actions_of(env, generator))
            env.reset(torch.tensor([0, 4]))
        assert env._registry.walks == before
