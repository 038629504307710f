"""UniLab's own Go2 task: how long a step takes, and how much of it its backend spends in the engine.

Its wheel has the robot without the meshes, which it downloads when they are missing. They are only drawn, never
touched, and every body's inertia is given in numbers; so a copy of the scene without them is the same physics.
"""

from __future__ import annotations

import json
import os
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import torch
from side import confine

SCENE = "scene_flat.xml"


def write_scene(folder: Path) -> Path:
    """Write the Go2 scene without meshes and return its file."""
    from unilab.assets import ASSETS_ROOT_PATH

    for source in (ASSETS_ROOT_PATH / "robots" / "go2").glob("*.xml"):
        tree = ElementTree.parse(source)
        for parent in list(tree.iter()):
            for child in list(parent):
                if child.tag == "mesh" or (child.tag == "geom" and "mesh" in child.attrib):
                    if child.get("class", "visual") != "visual":
                        raise ValueError(
                            f"{source.name}: a mesh of class {child.get('class')!r} may be touched"
                        )
                    parent.remove(child)
        tree.write(folder / source.name)
    return folder / SCENE


def make_env(scene: Path, num_envs: int) -> Any:
    """Return the environment that UniLab's training makes, of its own config."""
    import unilab
    from hydra import compose, initialize_config_dir
    from unilab.base import registry
    from unilab.base.config_adapter import EnvConfigAdapter

    registry.ensure_registries()
    configs = Path(unilab.__file__).parent / "conf" / "ppo"
    with initialize_config_dir(str(configs), version_base=None):
        cfg = compose("config", overrides=["task=go2_joystick_flat/mujoco", f"env.scene.model_file={scene}"])
    adapter = EnvConfigAdapter(cfg, root_dir=Path.cwd(), algo_name="ppo")
    return registry.make(
        cfg.training.task_name,
        sim_backend=cfg.training.sim_backend,
        num_envs=num_envs,
        env_cfg_override=adapter.build_task_env_cfg_override(),
    )


def measure(env: Any, *, windows: int, steps: int, warmup: int) -> dict[str, list[float]]:
    """Return milliseconds per step, window by window, by UniLab's own clocks."""
    generator = torch.Generator().manual_seed(0)
    env.init_state()
    env.set_episode_length_buf(torch.randint(env.max_episode_length, (env.num_envs,), generator=generator))
    shape = (env.num_envs, env.action_space.shape[0])
    actions = [torch.randn(shape, generator=generator) * 0.5 for _ in range(64)]
    found: dict[str, list[float]] = {"step_ms": [], "engine_ms": []}
    with torch.inference_mode():
        for i in range(warmup):
            env.step(actions[i % 64])
        for _ in range(windows):
            step = engine = 0.0
            for i in range(steps):
                timing = env.step(actions[i % 64]).info["timing"]
                step += timing["env_step_total_ms"]
                engine += timing["backend_physics_ms"]
            found["step_ms"].append(step / steps)
            found["engine_ms"].append(engine / steps)
    return found


def main() -> None:
    """Write the scene into a folder, or measure: what the first argument says."""
    request = json.loads(sys.argv[1])
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints is no reply
    scene = write_scene(Path(request["folder"]))
    reply: object = str(scene)
    if "num_envs" in request:
        confine(request["threads"])
        torch.set_num_threads(1)
        env = make_env(scene, request["num_envs"])
        reply = measure(env, windows=request["windows"], steps=request["steps"], warmup=request["warmup"])
    replies.write(json.dumps(reply) + "\n")
    replies.flush()


if __name__ == "__main__":
    main()
