"""Use one installed package as a newcomer would: `python -I scripts/smoke.py <target>`.

A target is a package, or a package with extras: `unilab-tasks[train]`. The environment holds the target and
what it depends on, from wheels.
"""

from __future__ import annotations

import importlib
import importlib.metadata as metadata
import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
ENGINES = {"mujoco", "mujoco_warp", "warp"}
# A task author's package installs none of these.
UNWANTED = {
    *(
        "gitpython",
        "matplotlib",
        "mlflow",
        "mujoco",
        "mujoco-warp",
        "onnx",
        "rsl-rl-lib",
        "swanlab",
        "tensorboard",
    ),
    *("tensorboardx", "tensordict", "viser", "wandb", "warp-lang"),
}


def require(condition: object, message: str) -> None:
    """Fail with a message, also where assert statements are switched off."""
    if not condition:
        raise SystemExit(f"smoke: {message}")


def check_files(package: str) -> None:
    """The distribution is installed, not linked, with its licence and its types."""
    files = [str(file) for file in metadata.files(package) or []]
    module = package.replace("-", "_")
    require(f"{module}/py.typed" in files, f"{package} has no py.typed")
    require(any(name.endswith("licenses/LICENSE") for name in files), f"{package} has no licence file")
    origin = Path(importlib.import_module(module).__file__ or "").resolve()
    require(CHECKOUT / "packages" not in origin.parents, f"{module} was imported from the checkout: {origin}")


def check_light(package: str) -> None:
    """Importing the package reads neither torch nor an engine."""
    heavy = ENGINES | ({"torch"} if package in {"unisim", "unilab-core"} else set())
    module = package.replace("-", "_")
    program = f"import sys, {module}; print(*sorted({heavy!r} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    require(not loaded.stdout.strip(), f"importing {module} also imports {loaded.stdout.strip()}")
    require(not loaded.stderr, f"importing {module} prints {loaded.stderr!r}")


def check_entry_points(package: str) -> None:
    """Everything that the distribution promises to other packages can be loaded."""
    for entry_point in metadata.distribution(package).entry_points:
        try:
            entry_point.load()
        except (ImportError, AttributeError) as error:
            name = f"entry point {entry_point.name} of {entry_point.group}"
            raise SystemExit(f"smoke: {name} fails: {error!r}") from error


def use_unisim() -> None:
    """A configuration survives YAML; a missing engine names the extra to install."""
    unisim = importlib.import_module("unisim")
    config = unisim.SimCfg(timestep=0.004)
    require(unisim.SimCfg.from_yaml(config.to_yaml()) == config, "SimCfg does not survive YAML")
    try:
        unisim.make_backend("mujoco", unisim.SceneCfg(entities={}), config, num_envs=1)
    except Exception as error:  # noqa: BLE001  # of any kind, as long as its text helps
        require("unisim[mujoco]" in str(error), f"a missing engine should name unisim[mujoco]: {error!r}")
    else:
        require(False, "make_backend worked without an engine")


def use_unilab_core() -> None:
    """The registry answers without any task installed."""
    core = importlib.import_module("unilab_core")
    require(list(core.list_tasks()) == [], "a core alone should know no task")


def use_unilab_managers() -> None:
    """No trainer, logger, viewer or engine came along."""
    installed = {re.sub(r"[-_.]+", "-", str(item.name)).lower() for item in metadata.distributions()}
    require(not installed & UNWANTED, f"unilab-managers installs {sorted(installed & UNWANTED)}")
    importlib.import_module("unilab_managers.mdp")


def use_unilab_rl() -> None:
    """The contract of an environment is there without a trainer."""
    importlib.import_module("unilab_rl.contracts.env")
    require("rsl_rl" not in sys.modules, "the contracts import a trainer")


def use_unilab_tasks() -> None:
    """A task is found by name, built and stepped."""
    torch = importlib.import_module("torch")
    core = importlib.import_module("unilab_core")
    with core.make_env("cartpole-balance", num_envs=2, seed=1) as env:
        env.reset()
        state = env.step(torch.zeros(env.num_envs, env.num_actions))
        require(bool(torch.isfinite(state.reward).all()), "the first reward is not finite")


def run_readmes() -> None:
    """The Python examples of the packages' READMEs run as they are."""
    with tempfile.TemporaryDirectory() as folder:
        for readme in sorted(CHECKOUT.glob("packages/*/README.md")):
            for number, block in enumerate(re.findall(r"```python\n(.*?)```", readme.read_text(), re.DOTALL)):
                example = Path(folder) / f"{readme.parent.name}_{number}.py"
                example.write_text(block)
                done = subprocess.run(
                    [sys.executable, "-I", example], cwd=folder, capture_output=True, text=True
                )
                require(
                    done.returncode == 0,
                    f"the example of {readme.parent.name}'s README fails:\n{done.stderr}",
                )


def use_training() -> None:
    """The command line lists the tasks and trains one, and the READMEs tell the truth."""
    run_readmes()
    unilab = Path(sysconfig.get_path("scripts")) / "unilab"
    listing = subprocess.run([unilab, "list", "--json"], capture_output=True, text=True, check=True).stdout
    support = {task["name"]: task["support"] for task in json.loads(listing)["tasks"]}
    require("cartpole-balance" in support, f"unilab list does not know cartpole-balance: {list(support)}")
    shown = [(entry["level"], entry["conformance"]) for entry in support["cartpole-balance"]]
    require(("trained", "passed") in shown, f"the recorded evidence was not installed: {shown}")
    with tempfile.TemporaryDirectory() as folder:
        train = f"{unilab} train cartpole-balance --iterations 1 --num-envs 8 --seed 1"
        subprocess.run(shlex.split(train), check=True, cwd=folder, stdout=subprocess.DEVNULL)
        runs = list(Path(folder).glob("runs/*/*/checkpoints/model_*.pt"))
        require(runs, "unilab train wrote no checkpoint")


USES = {
    "unisim": use_unisim,
    "unilab-core": use_unilab_core,
    "unilab-managers": use_unilab_managers,
    "unilab-rl": use_unilab_rl,
    "unilab-tasks": use_unilab_tasks,
    "unilab-tasks[train]": use_training,
}


def main() -> None:
    """Check the target named on the command line."""
    if sys.argv[1:2] == [] or sys.argv[1] not in USES:
        raise SystemExit(f"usage: smoke.py {{{','.join(USES)}}}")
    target = sys.argv[1]
    package = target.split("[")[0]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    check_light(package)
    check_files(package)
    if target.endswith("[train]"):
        for name in ("unisim", "unilab-core", "unilab-managers", "unilab-rl", "unilab-tasks"):
            check_entry_points(name)
    USES[target]()
    print(f"smoke: {target} works")


if __name__ == "__main__":
    main()
