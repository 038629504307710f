"""Tensors that share memory: no byte is copied twice, and each comes back whichever of them wrote it."""

from __future__ import annotations

import pytest
import torch
from object_graphs import ROW, Box, N, registry_of
from torch.utils._python_dispatch import TorchDispatchMode

from unilab_core.row_state import RowStateRegistry
from unilab_core.row_tensors import ConstantChangedError

LARGE = 20000
"""Columns of float32 that make a tensor of a few rows larger than 64 KiB."""


class Copied(TorchDispatchMode):
    """Sums the bytes that operators return or write through `out=`, views aside."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func.__name__.startswith(("cat", "clone", "index_select")):
            self.bytes += out.nbytes
        return out


def saved_bytes(root: Box, num_envs: int = N) -> int:
    registry, rows = RowStateRegistry({"term": root}, num_envs), ROW % num_envs
    registry.save(rows)
    with Copied() as copied:
        registry.save(rows)
    return copied.bytes


def with_views(base: torch.Tensor, *views: torch.Tensor) -> Box:
    root = Box()
    root.views, root.base = list(views), base  # the views first, for the order must not matter
    return root


def test_views_of_a_small_tensor_are_copied_with_it():
    base = torch.zeros(N, 8)
    root = with_views(base, base[:, 2], base[:, 1:4], base[1], base.t(), base.view(-1)[::3])
    assert saved_bytes(root) == base.nbytes


def test_views_whose_base_is_nobodys_are_copied_themselves():
    base = torch.zeros(N, 8)
    first, second = base[0], base[2]
    assert saved_bytes(with_views(first, second)) == first.nbytes + second.nbytes


def test_a_view_that_reaches_beyond_another_is_copied():
    base = torch.zeros(16)
    assert saved_bytes(with_views(base[:8], base[4:12])) == 16 * 4


def test_rows_of_views_of_a_large_tensor_are_copied_with_its_rows():
    base = torch.zeros(N, LARGE)
    root = with_views(base, base[:, : LARGE - 1], base[:, 1:], base.view(N, LARGE // 4, 4))
    assert saved_bytes(root) == base[ROW].nbytes


def test_a_small_view_of_a_large_tensor_is_saved_whole():
    base = torch.zeros(N, LARGE)
    column = base[:, 3]
    root = with_views(base, column)
    assert saved_bytes(root) == base[ROW].nbytes + column.nbytes
    registry = registry_of(root)
    saved = registry.save(ROW)
    column += 1.0
    registry.restore(saved)
    assert column.tolist() == [0.0] * N


@pytest.mark.parametrize("written", range(4))
def test_whoever_writes_everything_comes_back(written):
    base = torch.arange(24.0).view(N, 8)
    views = [base, base[:, 2], base.t(), base[1, ::2]]
    before = base.clone()
    registry = registry_of(with_views(base, *views[1:]))
    registry.save(ROW)
    saved = registry.save(ROW)
    views[written].add_(1.0)
    registry.restore(saved)
    assert torch.equal(base, before)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.resize_(4),
        lambda t: t.resize_(2, N),
        lambda t: t.set_(torch.ones(N, 2)),
        lambda t: setattr(t, "data", torch.ones(N, 2)),
        lambda t: t.as_strided_((N, 2), (4, 2)),
        lambda t: t.t_(),
        lambda t: t.as_strided_((N, 2), (0, 1)),
    ],
    ids=["resize_", "resize_ to as many", "set_", "data", "gaps", "t_", "expanded"],
)
@pytest.mark.parametrize(
    "make",
    [lambda: torch.zeros(20)[: 2 * N].view(N, 2), lambda: torch.zeros(4 * N, 2)[::4]],
    ids=["dense", "gapped"],
)
def test_a_tensor_that_got_other_memory_or_form_is_followed(make, change):
    root = Box()
    root.a = make()
    registry = registry_of(root)
    registry.save(ROW)
    change(root.a)
    saved, before = registry.save(ROW), root.a.clone()
    if 0 not in root.a.stride():  # what is expanded is nobody's state
        root.a.add_(3.0)
        registry.restore(saved)
    assert torch.equal(root.a, before)


@pytest.mark.parametrize("forms", [((20_000, 3), (3, 20_000)), ((3, 20_000), (60_000,))])
def test_a_large_tensor_that_got_another_form_is_saved_by_that(forms):
    root = Box()
    root.a = torch.zeros(forms[0])
    registry = registry_of(root)
    registry.save(ROW)
    root.a.resize_(forms[1])
    saved = registry.save(ROW)
    if forms[1][0] == N:
        root.a[ROW] += 1.0
        registry.restore(saved)
        assert not root.a.any()
    else:  # which has no rows any more, so that nothing of it may change
        root.a[50_000] += 1.0
        with pytest.raises(ConstantChangedError):
            registry.check_constants(saved)


def test_of_a_single_row_two_blocks_of_columns_lie_in_one_another_only_where_they_do():
    base = torch.zeros(1, 2 * LARGE + 8)
    root = with_views(base[:, :LARGE], base[:, LARGE : 2 * LARGE], base[:, LARGE : 2 * LARGE - 1])
    registry = RowStateRegistry({"term": root}, 1)
    row = torch.tensor([0])
    saved = registry.save(row)
    base.add_(1.0)
    registry.restore(saved)
    assert base[0, : 2 * LARGE].sum() == 0.0
    assert saved_bytes(root, 1) == 2 * LARGE * base.itemsize
