"""What a save keeps alive, and that tensors and containers of every kind come back as they were."""

from __future__ import annotations

import weakref
from collections import OrderedDict

import pytest
import torch
from object_graphs import ROW, Box, N, registry_of


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
