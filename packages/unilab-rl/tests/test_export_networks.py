"""A network of any class exports if its operations can, and is refused with the operation's name otherwise."""

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional

from unilab_core import CapabilityError
from unilab_rl.export.lowering import lower
from unilab_rl.export.onnx_graph import onnx_model
from unilab_rl.export.policy_runner import OPERATIONS

WIDTH, ACTIONS = 5, 3


def numpy_actions(program, rows):
    values = {name: weight.numpy() for name, weight in program.weights.items()} | {"obs": rows.numpy()}
    for step in program.steps:
        operands = [values[name] for name in step.inputs]
        values[step.output] = OPERATIONS[step.op](*operands, **step.settings)
    return values[program.output]


def onnx_actions(program, rows):
    model = onnx_model(program, None, WIDTH, ACTIONS, {})
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(["actions"], {"obs": rows.numpy()})[0]


def assert_exports(network):
    """Both forms of a network do what it does, for any number of rows, far from what it is used to as well."""
    network.eval()
    program = lower(network, WIDTH, ACTIONS)
    generator = torch.Generator().manual_seed(1)
    for rows, size in ((1, 1.0), (7, 1.0), (7, 50.0)):
        obs = size * torch.randn(rows, WIDTH, generator=generator)
        with torch.no_grad():
            expected = network(obs).numpy()
        for run in (numpy_actions, onnx_actions):
            found = run(program, obs)
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * max(1.0, np.abs(expected).max()))
    return program


def seeded(network):
    """Gives every parameter and statistic of a network a value that is not the one it begins with."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in (*network.parameters(), *network.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(0.2 + torch.rand(tensor.shape, generator=generator))
    return network


@pytest.mark.parametrize(
    "layer",
    [
        nn.ReLU(),
        nn.LeakyReLU(0.2),
        nn.ELU(0.7),
        nn.CELU(),
        nn.CELU(1.5),
        nn.SELU(),
        nn.SiLU(),
        nn.GELU(),
        nn.GELU(approximate="tanh"),
        nn.Mish(),
        nn.Softplus(),
        nn.Softplus(beta=2.0),
        nn.Tanh(),
        nn.Sigmoid(),
        nn.Hardtanh(-0.5, 0.25),
        nn.Identity(),
        nn.Dropout(0.5),
        nn.LayerNorm(8),
        nn.LayerNorm(8, elementwise_affine=False),
        nn.BatchNorm1d(8),
        nn.BatchNorm1d(8, affine=False),
        nn.Linear(8, 8, bias=False),
    ],
    ids=repr,
)
def test_layers_and_activations_export(layer):
    torch.manual_seed(0)
    hidden, last = nn.Linear(WIDTH, 8), nn.Linear(8, ACTIONS)
    assert_exports(nn.Sequential(hidden, seeded(layer), last))


class Residual(nn.Module):
    """Blocks with normalisations that are written out, as an off-policy actor has them, up to squashed actions."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("var", torch.ones(WIDTH))
        self.inner = nn.Parameter(torch.zeros(8, WIDTH))
        self.outer = nn.Linear(8, WIDTH)
        self.heads = nn.Linear(WIDTH, 2 * ACTIONS)
        self.register_buffer("low", -torch.ones(ACTIONS))

    def forward(self, obs):
        x = torch.addcmul(self.mean.neg(), obs - self.mean, (self.var + 1e-5).rsqrt())
        x = x + self.outer((x @ self.inner.mT).relu())
        x = x * (x.square().mean(dim=-1, keepdim=True) + 1e-6).rsqrt()
        mean, spread = self.heads(functional.normalize(x, dim=-1)).chunk(2, dim=-1)
        squashed = torch.tanh(2.0 - mean * 3.0) / 2
        return torch.clamp(squashed + 0.0 * spread.exp().sqrt().abs(), self.low * 0.4, -0.3 * self.low)


def test_normalisations_and_heads_that_are_written_out_export_and_constants_are_folded():
    torch.manual_seed(0)
    program = assert_exports(seeded(Residual()))
    # What depends on no observation is worked out once: one product for the input's normalisation, no square root.
    assert [step.op for step in program.steps[:3]] == ["subtract", "multiply", "add"]


class Columns(nn.Module):
    def forward(self, obs):
        first, second = obs.split([2, 3], dim=1)
        return torch.cat([second[:, 1:], first[:, :1]], dim=-1)


def test_columns_are_taken_apart_and_put_together():
    program = assert_exports(Columns())
    rows = torch.arange(10.0).reshape(2, WIDTH)
    assert numpy_actions(program, rows).tolist() == [[3.0, 4.0, 0.0], [8.0, 9.0, 5.0]]


class Plain(nn.Module):
    """A network that is one function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, obs):
        return self.function(obs)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: torch.sort(x[:, :ACTIONS], dim=1).values, "'sort.default'.*no translation"),
        (lambda x: x[:, :ACTIONS] ** 3, "the power 3, expected 2"),
        (
            lambda x: x[:, :ACTIONS] - x[:, :ACTIONS].mean(dim=0, keepdim=True),
            "its result has 1 rows whatever",
        ),
        (lambda x: x[:, :ACTIONS].double(), "float64 of 2 dimensions, expected float32 rows"),
        (lambda x: x[:, :ACTIONS] if bool(x.sum() > 0) else x[:, 1:4], "can't be traced"),
        (lambda x: torch.zeros(2, ACTIONS), "1 results of which 0 depend on the observation"),
        (lambda x: (x[:, :ACTIONS], x), "returns 2 results"),
        (lambda x: torch.mm(x.float(), torch.eye(5))[:, :3:2], "in steps of 2"),
        (lambda x: x[:, :2], "returns 2 columns, expected the 3 of the action"),
        (lambda x: x @ x.mT, "'mT.default'.*no translation"),
    ],
)
def test_what_cannot_be_exported_is_named(function, message):
    with pytest.raises(CapabilityError, match=message):
        lower(Plain(function).eval(), WIDTH, ACTIONS)


def test_normalising_by_the_batch_is_refused_and_the_layer_named():
    network = nn.Sequential(
        nn.Linear(WIDTH, ACTIONS), nn.BatchNorm1d(ACTIONS, track_running_stats=False)
    ).eval()
    with pytest.raises(CapabilityError, match="statistics of the batch, and a robot is a batch of one"):
        lower(network, WIDTH, ACTIONS)
