"""A driven environment reads what an independent forward computes, through exactly the promised transfers."""

from __future__ import annotations

import mujoco
import numpy as np
import torch

from unilab_core import SceneEntityCfg, make_env
from unilab_managers import ObservationGroupCfg, ObservationTermCfg
from unilab_tasks.cartpole.env_cfg import cartpole_swingup
from unilab_tasks.robots.cartpole import build_cartpole
from unisim import BuiltinSensorCfg, EntityCfg, SceneCfg

N, DECIMATION = 6, 2
_POLE = SceneEntityCfg(body_names=("pole",))
_TIP = SceneEntityCfg(site_names=("tip",))


def _derived(env) -> torch.Tensor:
    """Everything the engine derives: a body, a site, a position and a velocity sensor, (N, 13 + 13 + 6)."""
    data = env.scene["robot"].data
    handles = (data.bodies(_POLE), data.sites(_TIP))
    columns = [getattr(h, f)[:, 0] for h in handles for f in ("pos_w", "quat_w", "lin_vel_w", "ang_vel_w")]
    return torch.cat([*columns, *(env.scene.sensor(n) for n in ("where", "speed"))], dim=-1)


def _make():
    cfg = cartpole_swingup()
    kinds = {"where": "framepos", "speed": "velocimeter"}
    scene = SceneCfg(
        entities=cfg.scene.entities,
        sensors=tuple(BuiltinSensorCfg(name=n, kind=k, target="robot/tip") for n, k in kinds.items()),
    )
    group = ObservationGroupCfg(terms={"derived": ObservationTermCfg(func=_derived)})
    cfg = cfg.model_copy(update={"scene": scene, "observations": {"obs": group}, "episode_length_s": 1.0})
    return make_env(cfg, num_envs=N, seed=3)


def _model() -> mujoco.MjModel:
    """The same cart-pole composed here, by MuJoCo alone."""
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    spec.attach(build_cartpole(), prefix="robot/", frame=spec.worldbody.add_frame())
    for kind in ("FRAMEPOS", "VELOCIMETER"):
        spec.add_sensor(
            name=kind,
            type=getattr(mujoco.mjtSensor, f"mjSENS_{kind}"),
            objtype=mujoco.mjtObj.mjOBJ_SITE,
            objname="robot/tip",
        )
    return spec.compile()


def _expected(model: mujoco.MjModel, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    data = mujoco.MjData(model)
    data.qpos, data.qvel = qpos, qvel
    mujoco.mj_forward(model, data)
    rows = []
    for kind, name in ((mujoco.mjtObj.mjOBJ_XBODY, "robot/pole"), (mujoco.mjtObj.mjOBJ_SITE, "robot/tip")):
        velocity = np.zeros(6)
        element = data.body(name) if kind == mujoco.mjtObj.mjOBJ_XBODY else data.site(name)
        mujoco.mj_objectVelocity(model, data, kind, element.id, velocity, 0)
        quat = np.zeros(4)
        mujoco.mju_mat2Quat(quat, element.xmat)
        rows += [element.xpos, quat, velocity[3:], velocity[:3]]
    return np.concatenate([*rows, data.sensordata])


def _same_orientation(columns: np.ndarray) -> np.ndarray:
    """Makes w of both quaternions non-negative: q and -q are the same orientation."""
    columns = columns.copy()
    for start in (3, 16):
        if columns[start] < 0 or (columns[start] == 0 and columns[start + 2] < 0):
            columns[start : start + 4] *= -1
    return columns


def test_200_steps_with_resets_read_what_an_independent_forward_computes():
    model, generator = _model(), torch.Generator().manual_seed(0)
    resets = 0
    with _make() as env:
        env.reset()
        for step in range(200):
            state = env.step(2.0 * torch.rand(N, 1, generator=generator) - 1.0)
            resets += state.final_observation is not None
            if step % 23 == 11:
                env.reset(torch.tensor([4, 1]))
            data = env.scene["robot"].data
            for row in range(N):
                expected = _expected(model, data.joint_pos[row].numpy(), data.joint_vel[row].numpy())
                got = state.obs["obs"][row].numpy()
                np.testing.assert_allclose(
                    _same_orientation(got), _same_orientation(expected), atol=1e-5, rtol=1e-5
                )
    assert resets == 4  # rows 0, 2, 3 and 5 time out every 50 steps; 1 and 4 are reset by hand before that


def test_transfers_and_bytes_follow_the_rule():
    with _make() as env:
        env.reset()
        width = 2 + 2 + 1 + 13 + 13 + 6
        before = env.transfer_stats
        for step in range(100):
            if step % 10 == 5:
                env.reset(torch.tensor([4, 1]))
            env.step(torch.zeros(N, 1))
        after = env.transfer_stats

    def moved(kind: str) -> tuple[int, int]:
        old, new = getattr(before, kind), getattr(after, kind)
        return new.transfers - old.transfers, new.bytes - old.bytes

    # Rows 0, 2, 3 and 5 time out together after 50 and 100 steps; 1 and 4 are reset by hand ten times, never later
    # than 10 steps before.
    manual, automatic, state_width = 10, 2, 4
    rows = 2 * manual + 4 * automatic
    assert moved("control") == (100, 100 * 4 * N * 1)
    assert moved("read") == (100, 100 * 4 * N * width)
    assert moved("reset") == (manual + automatic, rows * (4 * state_width + 8))
    assert moved("selected_read") == (manual + automatic, rows * 4 * width)
    assert moved("write") == (0, 0)


def test_a_term_that_reads_nothing_derived_keeps_the_packet_at_the_state():
    cfg = cartpole_swingup()
    assert isinstance(cfg.scene.entities["robot"], EntityCfg)
    with make_env(cfg, num_envs=2) as env:
        assert env.describe().reads == ("qpos", "qvel", "ctrl")
