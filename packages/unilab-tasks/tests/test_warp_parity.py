"""The quadruped on MuJoCo-Warp moves and reads as on MuJoCo, before and after a masked reset."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from unilab_core import make_env
from unisim import ResetPayload, make_backend
from unisim.contract import Declared, SimBackend

pytestmark = pytest.mark.timeout(600)  # a model whose kernels were never compiled takes minutes

TASK = "velocity-flat-quadruped"
STEPS, SUBSTEPS, RESET_AT = 100, 4, 60
ROWS = 16
EVERYONE, RESET_ROWS = torch.arange(ROWS), torch.arange(0, ROWS, 3)

Make = Callable[[str, int], SimBackend]


@pytest.fixture(scope="module")
def make() -> Iterator[Make]:
    """Makes backends of the task's own scene and settings."""
    with make_env(TASK, num_envs=1) as env:
        scene, sim = env.cfg.scene, env.cfg.sim
    assert sim.cone == "pyramidal"
    made: list[SimBackend] = []

    def make_one(name: str, num_envs: int) -> SimBackend:
        made.append(make_backend(name, scene, sim, num_envs=num_envs, declared=Declared()))
        return made[-1]

    yield make_one
    for backend in made:
        backend.close()


@pytest.fixture(scope="module")
def pair(make: Make) -> tuple[SimBackend, SimBackend]:
    """MuJoCo-Warp and MuJoCo."""
    return make("mujoco_warp", ROWS), make("mujoco", ROWS)


def reset(backend: SimBackend, rows: torch.Tensor) -> None:
    mask = torch.zeros(ROWS, dtype=torch.bool).index_fill(0, rows, True)
    backend.apply_reset(mask, ResetPayload(rows))


def controls(backend: SimBackend) -> Iterator[torch.Tensor]:
    """Random targets around the home pose, (ROWS, nu) for each of the steps."""
    layout = backend.model_layout
    home = torch.tensor(
        [layout.default_qpos[joint.qpos_start] for joint in layout.joints if joint.qpos_dim == 1]
    )
    generator = torch.Generator().manual_seed(0)
    for _ in range(STEPS):
        yield home + 0.3 * (torch.rand(ROWS, layout.nu, generator=generator) - 0.5)


def tolerance(expected: torch.Tensor) -> torch.Tensor:
    return 1e-4 + 1e-3 * expected.abs()


# ---------------------------------------------------------------------- positions, and every read but accelerations


def keys_but_accelerations(backend: SimBackend) -> list[str]:
    layout = backend.model_layout
    return [
        *("qpos", "qvel", "ctrl", "actuator_force"),
        *(f"sensor:{sensor.name}" for sensor in layout.sensors),
        *(f"body:{name}" for name in layout.bodies),
        *(f"site:{name}" for name in layout.sites),
    ]


def expect_agreement(warp: SimBackend, mujoco: SimBackend, where: str) -> None:
    keys = keys_but_accelerations(warp)
    found, expected = warp.get_state_views(keys), mujoco.get_state_views(keys)
    for key in keys:
        excess = (found[key] - expected[key]).abs() - tolerance(expected[key])
        assert (excess <= 0.0).all(), f"{where}: {key} differs by {float(excess.max()):.3g} too much"


def test_in_free_rollout_and_across_a_masked_reset_positions_agree_to_1e_5(pair, record_property):
    warp, mujoco = pair
    for backend in pair:
        reset(backend, EVERYONE)
    default = torch.tensor(warp.model_layout.default_qpos)
    largest, moved = 0.0, 0.0
    for i, ctrl in enumerate(controls(warp)):
        for backend in pair:
            backend.step_tensor(ctrl, SUBSTEPS)
        if i == RESET_AT:
            for backend in pair:
                reset(backend, RESET_ROWS)
            expect_agreement(warp, mujoco, f"after the reset in step {i + 1}")
        found, expected = warp.get_state_views()["qpos"], mujoco.get_state_views()["qpos"]
        largest = max(largest, float((found - expected).abs().max()))
        moved = max(moved, float((expected - default).abs().max()))
        expect_agreement(warp, mujoco, f"step {i + 1}")
    record_property("largest difference of qpos", largest)
    assert largest < 1e-5
    assert moved > 0.1


# ---------------------------------------------------------------------- accelerations


def state_of(backend: SimBackend) -> torch.Tensor:
    """Positions and velocities, (ROWS, nq + nv), rounded to float32 as every read is."""
    views = backend.get_state_views(["qpos", "qvel"])
    return torch.cat([views["qpos"], views["qvel"]], dim=1)


def accelerations_of(backend: SimBackend) -> torch.Tensor:
    return backend.get_state_views(["qacc"])["qacc"].clone()


def accelerations_at(states: torch.Tensor, ctrl: torch.Tensor, backend: SimBackend) -> torch.Tensor:
    """Those of a full forward of each row of a backend at states (N, nq + nv) under controls (N, nu)."""
    rows, nq = torch.arange(states.shape[0]), backend.model_layout.nq
    qpos, qvel = states[:, :nq].contiguous(), states[:, nq:].contiguous()
    payload = ResetPayload(rows, qpos=qpos, qvel=qvel, ctrl=ctrl)
    backend.apply_reset(torch.ones_like(rows, dtype=torch.bool), payload)
    return accelerations_of(backend)


class Neighbours:
    """MuJoCo's own accelerations, in double precision, at float32 states and at their nearest float32 states."""

    def __init__(self, make: Make, width: int) -> None:
        self._width, self._repeats = width, 1 + 2 * width
        self._backend = make("mujoco", ROWS * self._repeats)

    def of(self, state: torch.Tensor, ctrl: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Looks at states (ROWS, nq + nv) under controls (ROWS, nu).

        Returns:
            The accelerations (ROWS, nv); by how much each changes from one float32 neighbour of the state to the
            other in each element (ROWS, nv, nq + nv); how far these neighbours are apart (ROWS, nq + nv).
        """
        up, down = (torch.nextafter(state, torch.full_like(state, end)) for end in (torch.inf, -torch.inf))
        one = torch.eye(self._width, dtype=torch.bool)[:, None, :]
        states = torch.cat([state[None], torch.where(one, up, state), torch.where(one, down, state)])
        found = accelerations_at(
            states.view(-1, self._width), ctrl.repeat(self._repeats, 1), self._backend
        ).view(self._repeats, ROWS, -1)
        above, below = found[1:].split(self._width)
        return found[0], (above - below).abs().permute(1, 2, 0), up - down


@pytest.fixture(scope="module")
def neighbours(make: Make, pair: tuple[SimBackend, SimBackend]) -> Neighbours:
    layout = pair[0].model_layout
    return Neighbours(make, layout.nq + layout.nv)


class Comparison:
    """Differences of accelerations, as multiples of the tolerance, and of tolerance and allowance together."""

    def __init__(self) -> None:
        self._bare: list[torch.Tensor] = []
        self._allowed: list[torch.Tensor] = []

    def add(self, found: torch.Tensor, expected: torch.Tensor, allowance: torch.Tensor | float = 0.0) -> None:
        difference, bare = (found - expected).abs(), tolerance(expected)
        self._bare.append(difference / bare)
        self._allowed.append(difference / (bare + allowance))

    def figures(self) -> dict[str, float]:
        bare, allowed = torch.stack(self._bare), torch.stack(self._allowed)
        return {
            "largest multiple of the tolerance": float(bare.max()),
            "share beyond the tolerance": float((bare > 1.0).double().mean()),
            "largest multiple with the allowance": float(allowed.max()),
        }


def test_accelerations_agree_but_for_what_rounding_the_state_does(pair, neighbours, record_property):
    """Each element agrees to the tolerance and what MuJoCo's own changes between the float32 neighbours of the state.

    In the rollout the states of the two differ as well, which adds that difference times the same slopes.
    """
    warp, mujoco = pair
    for backend in pair:
        reset(backend, EVERYONE)
    same_state, rollout = Comparison(), Comparison()

    def compare(warp_before: torch.Tensor, mujoco_before: torch.Tensor, ctrl: torch.Tensor) -> None:
        found, moved = accelerations_of(warp), accelerations_of(mujoco)
        expected, span, apart = neighbours.of(warp_before, ctrl)
        same_state.add(found, expected, span.sum(dim=2))
        spans = 1.0 + (warp_before - mujoco_before).abs() / apart
        rollout.add(found, moved, (span * spans[:, None]).sum(dim=2))
        # Whatever the allowance of an element is, what the largest of its row may differ is the limit.
        largest = moved.abs().amax(dim=1, keepdim=True)
        assert ((found - moved).abs() <= tolerance(largest)).all()

    for i, ctrl in enumerate(controls(warp)):
        for backend in pair:
            backend.step_tensor(ctrl, SUBSTEPS - 1)
        before = [state_of(backend) for backend in pair]  # which the last substep's accelerations are of
        for backend in pair:
            backend.step_tensor(ctrl, 1)
        compare(*before, ctrl)
        if i == RESET_AT:
            for backend, state in zip(pair, before, strict=True):
                reset(backend, RESET_ROWS)
                state[RESET_ROWS] = state_of(backend)[RESET_ROWS]
            ctrl[RESET_ROWS] = warp.get_state_views(["ctrl"])["ctrl"][RESET_ROWS]
            compare(*before, ctrl)
    for name, comparison in (("the same state", same_state), ("the rollout", rollout)):
        figures = comparison.figures()
        record_property(name, figures)
        assert figures["largest multiple with the allowance"] < 1.0, name
        assert figures["share beyond the tolerance"] < 0.005, name


def test_rounding_its_state_alone_moves_accelerations_of_mujoco_beyond_the_tolerance(
    make, pair, record_property
):
    """An engine that rounds its state to float32 and computes exactly needs the allowance of the test above as well."""
    mujoco, exact = pair[1], make("mujoco", ROWS)
    reset(mujoco, EVERYONE)
    rounded = Comparison()
    for ctrl in controls(mujoco):
        mujoco.step_tensor(ctrl, SUBSTEPS - 1)
        before = state_of(mujoco)
        mujoco.step_tensor(ctrl, 1)
        rounded.add(accelerations_at(before, ctrl, exact), accelerations_of(mujoco))
    figures = rounded.figures()
    record_property("rounded state", figures)
    assert figures["largest multiple of the tolerance"] > 2.0
