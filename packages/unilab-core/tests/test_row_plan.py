"""What a walk found serves later saves: whatever changed in between, a rejected reset puts back what was there."""

from __future__ import annotations

import random
import weakref
from collections import OrderedDict, deque
from typing import Any

import pytest
import torch
from core_support import ScriptedEnv, steps
from hypothesis import given
from hypothesis import strategies as st
from twins import Helper, Mark, Slotted, Tripped
from velocity import VelocityEnv, actions_of, fake_backend

from unilab_core import ConfigError, ResetRejectedError
from unilab_core.row_state import RowStateRegistry

N = 3
ROW = torch.tensor([1])
REACH = 3
"""How many objects deep things are put back."""


class Box:
    """An object that holds whatever a test puts into it."""


def registry_of(root: object) -> RowStateRegistry:
    return RowStateRegistry({"term": root}, N)


def held_by(thing: Any) -> list[tuple[Any, Any]]:
    if isinstance(thing, dict):
        return list(thing.items())
    if isinstance(thing, list | tuple | deque):
        return list(enumerate(thing))
    if isinstance(thing, Slotted):
        return [(name, getattr(thing, name)) for name in ("count", "rows") if hasattr(thing, name)]
    return sorted(vars(thing).items()) if isinstance(thing, Box) else []


def reachable(root: Box) -> list[Any]:
    """Returns what is put back, by a plain search: whatever is at most so many objects away."""
    found, distance = {id(root): root}, {id(root): 0}
    frontier = [root]
    while frontier:
        thing = frontier.pop(0)
        for _, value in held_by(thing):
            far = distance[id(thing)] + isinstance(value, Box | Slotted)
            enters = isinstance(value, Box | Slotted | dict | list | tuple | deque | set | torch.Tensor)
            if enters and far <= REACH and far < distance.get(id(value), REACH + 1):
                found[id(value)], distance[id(value)] = value, far
                frontier.append(value)
    return list(found.values())


def picture(root: Box) -> dict[int, Any]:
    """Returns what everything reachable holds: references by identity, plain values and tensors by value."""
    content: dict[int, Any] = {}
    for thing in reachable(root):
        if isinstance(thing, torch.Tensor):
            content[id(thing)] = (tuple(thing.shape), thing.tolist())
        elif isinstance(thing, set):
            content[id(thing)] = sorted(thing)
        else:
            content[id(thing)] = [(k, v if isinstance(v, int) else id(v)) for k, v in held_by(thing)]
    return content


class Play:
    """Random changes of a graph of objects, containers and tensors; everything it ever held stays alive."""

    MAKES = (
        lambda: 7,
        lambda: None,
        lambda: Mark(1, "a"),
        lambda: torch.zeros(N),
        lambda: torch.zeros(2, N).t(),
        lambda: torch.zeros(6)[::2],
        lambda: torch.zeros(N, 20000),
        lambda: torch.zeros(()),
        dict,
        list,
        lambda: {1},
        lambda: deque([1, 2], maxlen=2),
        lambda: {"a": torch.zeros(2)},
        lambda: OrderedDict(a=1, b=torch.zeros(2)),
        lambda: [torch.zeros(2), {}],
        lambda: (torch.zeros(2), [1]),
        Box,
        lambda: Slotted(N),
    )

    def __init__(self, root: Box, draw: Any) -> None:
        self.root, self.draw = root, draw
        self.alive: list[Any] = []

    def pick(self, things: Any) -> Any:
        return self.draw(st.sampled_from(things))

    def act(self, *, moves_memory: bool = True) -> None:
        things = reachable(self.root)
        self.alive.extend(things)
        holder = self.pick(things)
        value = self.pick(things) if self.draw(st.booleans()) else self.pick(self.MAKES)()
        self.alive.append(value)
        if isinstance(holder, torch.Tensor):
            self.change(holder, moves_memory)
        elif isinstance(holder, dict):
            if holder and self.draw(st.booleans()):
                del holder[self.pick(sorted(holder))]
            elif len(holder) > 1 and isinstance(holder, OrderedDict) and self.draw(st.booleans()):
                holder.move_to_end(self.pick(sorted(holder)))
            else:
                holder[self.pick("abc")] = value
        elif isinstance(holder, list | deque):
            if holder and self.draw(st.booleans()):
                holder[-1] = value
            elif len(holder) > 2:
                holder.pop()
            else:
                holder.append(value)
        elif isinstance(holder, set):
            holder.symmetric_difference_update({self.draw(st.integers(0, 2))})
        elif isinstance(holder, Box | Slotted):
            names = ("count", "rows") if isinstance(holder, Slotted) else tuple("abcd")
            name = self.pick(names)
            if hasattr(holder, name) and self.draw(st.booleans()):
                delattr(holder, name)
            else:
                setattr(holder, name, value)

    def change(self, tensor: torch.Tensor, moves_memory: bool) -> None:
        if tensor.nbytes > 1000:  # of which only the rows that are saved may change
            tensor[ROW] += 1.0
        elif moves_memory and self.draw(st.booleans()):
            tensor.data = torch.full((2,), 5.0)  # and another shape
        else:
            tensor.add_(1.0)


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


# ---------------------------------------------------------------- through a rejected reset


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


# ---------------------------------------------------------------- what is kept alive


@pytest.mark.parametrize("make", [lambda: torch.zeros(N), Box])
def test_what_was_replaced_lives_until_the_next_save_and_no_longer(make):
    root = Box()
    root.held = make()
    registry = registry_of(root)
    registry.save(ROW)
    gone = weakref.ref(root.held)
    root.held = make()
    registry.save(ROW)
    assert gone() is None


def test_a_save_is_good_until_the_next_one():
    root = Box()
    root.rows = torch.zeros(N)
    registry = registry_of(root)
    first = registry.save(ROW)
    registry.restore(first)
    second = registry.save(ROW)
    with pytest.raises(RuntimeError, match="restore: got save 1, expected the last one, 2"):
        registry.restore(first)
    registry.restore(second)


def test_small_tensors_of_every_dtype_and_layout_come_back_to_the_bit():
    root = Box()
    base = torch.arange(12.0).reshape(3, 4)
    root.values = [
        torch.tensor([True, False]),
        torch.tensor([1, -2], dtype=torch.int8),
        torch.tensor([2**60 + 1]),
        torch.tensor([float("nan"), -0.0, float("inf")]),
        torch.tensor(3.0, dtype=torch.float64),
        torch.tensor([1 + 2j]).conj(),
        torch.tensor([1.5], dtype=torch.bfloat16),
        *(base, base.t(), base[:, 1], base[:, 1:3], base[1:]),
        torch.arange(4.0)[3::3],  # one element, with a stride of three
        torch.zeros(0, 3),
        torch.zeros(3, requires_grad=True),
    ]
    registry = registry_of(root)
    registry.save(ROW)
    saved = registry.save(ROW)
    before = [value.detach().clone() for value in root.values]
    with torch.no_grad():
        for value in root.values:
            value.zero_()
    registry.restore(saved)
    for value, expected in zip(root.values, before, strict=True):
        assert repr(value.tolist()) == repr(expected.tolist())  # tells -0.0 from 0.0, and NaN is NaN


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


def test_an_ordered_dict_whose_order_is_not_that_of_its_making_is_put_back():
    root = Box()
    root.recent = OrderedDict(a=1, b=torch.zeros(N))
    root.recent.move_to_end("a")
    registry = registry_of(root)
    registry.save(ROW)
    root.recent["a"], root.recent["b"] = 5, torch.ones(N)
    saved = registry.save(ROW)
    root.recent["a"] = 6
    root.recent["b"].zero_()
    root.recent.move_to_end("b")
    registry.restore(saved)
    assert list(root.recent) == ["b", "a"]
    assert root.recent["a"] == 5
    assert torch.equal(root.recent["b"], torch.ones(N))


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation")
def test_a_quantised_tensor_is_put_back():
    root = Box()
    root.q = torch.quantize_per_tensor(torch.tensor([1.0, 2.0]), 0.5, 0, torch.qint8)
    registry = registry_of(root)
    saved = registry.save(ROW)
    root.q.copy_(torch.quantize_per_tensor(torch.tensor([3.0, 4.0]), 0.5, 0, torch.qint8))
    registry.restore(saved)
    assert root.q.dequantize().tolist() == [1.0, 2.0]
