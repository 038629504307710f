"""Published weights arrive whole, exact in every dtype, and the newest version first."""

import multiprocessing

import pytest
import torch
from off_policy_support import CountedModule, read_until

from unilab_core import CapabilityError
from unilab_rl.runtime import shared_memory
from unilab_rl.runtime.weights import SharedWeights, WeightPublisher, WeightReader

pytestmark = pytest.mark.timeout(300)  # the last one shares cores with whatever else runs

PUBLICATIONS = 100_000


def pair(size=64):
    module = CountedModule(size)
    shared = SharedWeights.of(module)
    copy = CountedModule(size)
    return module, WeightPublisher(module, shared), copy, WeightReader(copy, shared)


def test_every_dtype_arrives_bit_for_bit():
    module, publisher, copy, reader = pair()
    assert not reader.refresh()
    module.hold(3)
    module.weight.data[1:4] = torch.tensor([float("nan"), -0.0, 1e-45])
    assert publisher.publish() == 1
    assert reader.refresh()
    assert (reader.version, publisher.version) == (1, 1)
    for name, tensor in module.state_dict().items():
        got = copy.state_dict()[name]
        assert got.dtype == tensor.dtype
        assert torch.equal(got.view(torch.uint8), tensor.view(torch.uint8)), name
    assert not reader.refresh()


def test_later_changes_arrive_only_when_they_are_published():
    module, publisher, copy, reader = pair()
    module.hold(1)
    publisher.publish()
    module.hold(2)
    reader.refresh()
    assert copy.held() == 1
    publisher.publish()
    publisher.publish()
    reader.refresh()
    assert (copy.held(), reader.version) == (2, 3)


def test_a_buffer_that_was_replaced_is_published_too():
    module, publisher, copy, reader = pair()
    module.hold(1)
    module.mean = module.mean.clone()
    module.hold(5)
    publisher.publish()
    reader.refresh()
    assert copy.held() == 5


class Interrupted(torch.Tensor):
    """A copy that is begun, and before it goes on something else happens."""

    happens = staticmethod(lambda: None)

    def copy_(self, other):
        result = super().copy_(other)
        happens, type(self).happens = type(self).happens, staticmethod(lambda: None)
        happens()
        return result


@pytest.mark.parametrize(
    ("published_meanwhile", "retries", "version"), [(0, 0, 1), (1, 0, 1), (2, 1, 3), (5, 1, 6)]
)
def test_a_copy_that_may_have_been_written_over_is_made_again(published_meanwhile, retries, version):
    module, publisher, copy, reader = pair()
    module.hold(1)
    publisher.publish()

    def publish():
        for number in range(2, 2 + published_meanwhile):
            module.hold(number)
            publisher.publish()

    Interrupted.happens = staticmethod(publish)
    reader._copy = reader._copy.as_subclass(Interrupted)
    assert reader.refresh()
    assert (reader.retries, reader.version, copy.held()) == (retries, version, version)


def test_a_half_that_is_just_being_written_is_not_taken():
    """As a processor might show it that reorders stores: the counters say whole, the bytes are not."""
    module, publisher, copy, reader = pair()
    module.hold(1)
    publisher.publish()
    whole = reader._shared.payload[1].clone()
    reader._shared.payload[1, :8] += 1

    def arrives():
        reader._shared.payload[1].copy_(whole)

    Interrupted.happens = staticmethod(arrives)
    reader._copy = reader._copy.as_subclass(Interrupted)
    assert reader.refresh()
    assert (reader.retries, copy.held()) == (1, 1)


def test_a_module_of_another_size_is_refused():
    _, _, _, reader = pair()
    with pytest.raises(
        ValueError, match=r"has \('weight', torch.float32, \(65,\)\) where .*\(64,\)\) is published"
    ):
        WeightReader(CountedModule(65), reader._shared)


def test_too_little_shared_memory_is_said_before_it_is_taken(monkeypatch):
    monkeypatch.setattr(shared_memory, "_free_bytes", lambda: 1000)
    with pytest.raises(
        CapabilityError, match=r"shared memory: 16,\d+ bytes are needed and 1,000 are free .*shm-size"
    ):
        SharedWeights.of(CountedModule())


def test_of_100_000_publications_none_is_torn():
    context = multiprocessing.get_context("spawn")
    module = CountedModule()
    shared = SharedWeights.of(module)
    publisher = WeightPublisher(module, shared)
    ready, (results, sending) = context.Event(), context.Pipe(duplex=False)
    process = context.Process(target=read_until, args=(shared, PUBLICATIONS, ready, sending), daemon=True)
    process.start()
    sending.close()
    try:
        assert ready.wait(60)
        for number in range(1, PUBLICATIONS + 1):
            module.hold(number)
            assert publisher.publish() == number
        assert results.poll(60)
        outcome = results.recv()
        assert isinstance(outcome, tuple), outcome
        seen, _ = outcome
        assert seen > 100, "the reader must have read while the weights were published"
    finally:
        process.join(10)
        process.kill()
        process.join()
        process.close()
        results.close()
