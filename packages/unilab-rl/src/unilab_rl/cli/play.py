"""`unilab play`: shows what a policy does."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from unilab_core.cli.errors import BadInputError
from unilab_rl.cli.shared import RUNS, SEED, failures_as_messages, find_run

if TYPE_CHECKING:
    from unilab_core import CameraCfg, Cfg
    from unilab_rl.contracts.algorithm import Policy
    from unilab_rl.contracts.env import EnvProtocol
    from unilab_rl.run_config import RunConfig
    from unilab_rl.run_folder import RunFolder

__all__ = ["command"]

_EXAMPLES = """\b
Examples:
  unilab play latest --video
  unilab play cartpole-balance --policy random --video random.mp4 --seconds 5
  unilab play latest --video --camera distance=4 --camera azimuth=90 --row 7
"""
_ROWS = (
    64  # as `unilab eval` measures by default, so that row and seed show the very episode that was measured
)
_LONGEST_S = 10.0  # of a video that nobody gave a length


@click.command("play", epilog=_EXAMPLES)
@click.argument("what", metavar="RUN_OR_TASK")
@click.option(
    "--video",
    is_flag=False,
    flag_value="",
    metavar="[FILE.mp4]",
    help="Write a video; without FILE into the run's folder videos/, or for a task into this folder.",
)
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@click.option(
    "--policy",
    type=click.Choice(["trained", "zero", "random"]),
    help="What acts; by default the run's policy, and for a task one that does nothing.",
)
@click.option("--steps", type=click.IntRange(min=1), help="Length in control steps.")
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), help="Length in simulated seconds.")
@click.option(
    "--row", type=click.IntRange(min=0), default=0, show_default=True, help="Environment to be seen."
)
@click.option(
    "--seed", type=SEED, help="Seed of the episodes; by default that of `unilab eval`, or 0 for a task."
)
@click.option("--backend", metavar="NAME", help="Physics backend; by default the run's, or mujoco.")
@click.option("--device", metavar="DEVICE", help="Torch device; by default the run's, or cpu.")
@click.option("--as-trained", is_flag=True, help="Show the config of the training in any case.")
@click.option(
    *("--set", "overrides"),
    metavar="PATH=VALUE",
    multiple=True,
    help="Change a field of the environment's config.",
)
@click.option(
    *("--camera", "camera"),
    metavar="FIELD=VALUE",
    multiple=True,
    help="Change the camera: track, lookat, distance, azimuth, elevation, width or height.",
)
@click.option("--runs", type=RUNS, default=Path("runs"), help="Folder of all runs.")
def command(
    what: str,
    video: str | None,
    force: bool,
    policy: str | None,
    steps: int | None,
    seconds: float | None,
    row: int,
    seed: int | None,
    backend: str | None,
    device: str | None,
    as_trained: bool,
    overrides: tuple[str, ...],
    camera: tuple[str, ...],
    runs: Path,
) -> None:
    """Shows what a policy does, as a video that runs in real time; needs no screen.

    RUN_OR_TASK is a run's folder, one of its checkpoints, 'latest', or the name of a task. As in `unilab eval`, 64
    environments are made from the task's evaluation config where it has one, and one of them is seen, by default for
    one time limit, 10 s at most.

    A FILE that is there is not replaced without --force; a video that is named by itself gets the next free number.
    A video appears under its name when it is whole, so an interrupted one leaves nothing.
    """
    if video is None:
        raise BadInputError(
            "there is no viewer window yet, play only writes videos: add --video, or --video FILE.mp4"
        )
    if steps is not None and seconds is not None:
        raise BadInputError("--steps and --seconds contradict each other; give one of them")
    _use_offscreen_gl()
    with failures_as_messages():
        from unilab_rl.viewing.video import require_video

        require_video()
        view = _camera(camera)
        played = _find(what, runs, policy, seed, as_trained)
        path = _video_path(video, played, force)
        _record(
            played,
            path,
            view,
            overrides=overrides,
            backend=backend or played.backend,
            device=device or played.device,
            row=row,
            steps=steps,
            seconds=seconds,
        )


@dataclass(frozen=True)
class _Played:
    """What is shown."""

    task: str
    cfg: Cfg
    function: str  # of the task, which made `cfg` for evaluations
    policy: str
    seed: int
    backend: str = "mujoco"
    device: str = "cpu"
    run: tuple[RunFolder, RunConfig, Path] | None = None  # with the checkpoint


def _find(what: str, runs: Path, policy: str | None, seed: int | None, as_trained: bool) -> _Played:
    """Returns the run or the task of that name; a run's folder goes first."""
    from unilab_core import get_task, list_tasks, load_env_cfg, nearest
    from unilab_rl.run_folder import LATEST
    from unilab_rl.runtime.evaluator import evaluation_cfg

    tasks = [spec.name for spec in list_tasks()]
    path = Path(what)
    is_task = what.lower() in tasks and not (path / "config.yaml").is_file()
    if what == LATEST or (path.exists() and not is_task):
        return _find_run(what, runs, policy, seed, as_trained)
    if not is_task:
        raise BadInputError(f"{what!r} is neither a run nor a task; {nearest(what, [*tasks, LATEST])}")
    if policy == "trained":
        raise BadInputError(
            f"--policy trained needs a run, and {what!r} is a task; train it first, or take zero or random"
        )
    spec = get_task(what)
    cfg: Cfg = load_env_cfg(spec.name)
    cfg, function = (cfg, "") if as_trained else evaluation_cfg(spec.name, cfg)
    return _Played(spec.name, cfg, function, policy or "zero", seed or 0)


def _find_run(what: str, runs: Path, policy: str | None, seed: int | None, as_trained: bool) -> _Played:
    from unilab_rl.checkpoint import load_latest_checkpoint
    from unilab_rl.runtime.evaluator import evaluation_cfg, evaluation_seed

    folder, path = find_run(what, runs)
    config = folder.config()
    path = path or load_latest_checkpoint(folder.checkpoints)[0]
    cfg, function = (config.env, "") if as_trained else evaluation_cfg(config.task, config.env)
    return _Played(
        config.task,
        cfg,
        function,
        policy or "trained",
        evaluation_seed(config.seed) if seed is None else seed,
        config.backend,
        config.device,
        (folder, config, path),
    )


def _camera(texts: tuple[str, ...]) -> CameraCfg:
    from unilab_core import CameraCfg, ConfigError, parse_overrides

    try:
        return CameraCfg().with_(parse_overrides(texts))
    except ConfigError as error:
        raise BadInputError(f"--camera: {error}") from error


def _video_path(video: str, played: _Played, force: bool) -> Path:
    """Returns where the video goes, checked before anything is built."""
    if not video:
        if played.run is None:
            return _free(Path(f"{played.task}-{played.policy}.mp4"))
        folder, _, checkpoint = played.run
        folder.videos.mkdir(exist_ok=True)
        name = checkpoint.stem if played.policy == "trained" else f"{checkpoint.stem}-{played.policy}"
        return _free(folder.videos / f"{name}.mp4")
    path = Path(video)
    if path.suffix.lower() != ".mp4":
        raise BadInputError(f"--video {video}: expected a name that ends in .mp4")
    if not path.parent.is_dir():
        raise BadInputError(f"--video {video}: there is no folder {path.parent}")
    if path.is_dir():
        raise BadInputError(f"--video {video}: is a folder")
    if path.exists() and not force:
        raise BadInputError(f"--video {video}: is there already; --force replaces it")
    return path


def _free(path: Path) -> Path:
    """Returns `path`, or the same with the first number from 2 that no other video has."""
    free, number = path, 1
    while free.exists():
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return free


def _use_offscreen_gl() -> None:
    """Lets OpenGL draw without a screen where there is none.

    Comes before anything of a task is imported: the engine looks once, when it is imported, and configs may import it.
    """
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        os.environ.setdefault("MUJOCO_GL", "egl")


def _record(
    played: _Played,
    path: Path,
    camera: CameraCfg,
    *,
    overrides: tuple[str, ...],
    backend: str,
    device: str,
    row: int,
    steps: int | None,
    seconds: float | None,
) -> None:
    from unilab_core import make_env, parse_overrides
    from unilab_rl.viewing.film import film, steps_per_frame
    from unilab_rl.viewing.video import VideoWriter

    changes = parse_overrides(overrides)
    changes.setdefault("num_envs", max(_ROWS, row + 1))
    with closing(
        make_env(played.cfg, backend=backend, device=device, seed=played.seed, overrides=changes)
    ) as env:
        if row >= env.num_envs:
            raise BadInputError(f"--row {row}: there are {env.num_envs} environments, expected below that")
        policy = _policy(played, env)
        _check_picture(env, row, camera)
        length = _steps(env, steps, seconds)
        frames = film(env, policy, row=row, camera=camera, steps=length, seed=played.seed)
        every = steps_per_frame(env.step_dt)
        with (
            VideoWriter(path, frame_s=every * env.step_dt) as writer,
            click.progressbar(
                frames,
                length=1 + length // every,
                label="recording",
                file=sys.stderr,
                hidden=not sys.stderr.isatty(),
            ) as bar,
        ):
            for frame in bar:
                writer.add(frame)
    where = f", evaluation config {played.function}" if played.function else ""
    click.echo(f"{played.task}, policy {played.policy}, seed {played.seed}, row {row}{where}")
    click.echo(f"video: {path} ({length * env.step_dt:.4g} s)")


def _policy(played: _Played, env: EnvProtocol) -> Policy:
    from unilab_rl.checkpoint import load_checkpoint
    from unilab_rl.runtime.evaluator import import_training_state, load_policy
    from unilab_rl.runtime.policies import RandomPolicy, ZeroPolicy

    if played.run is not None:
        _, config, path = played.run
        checkpoint = load_checkpoint(path)
        import_training_state(env, path, checkpoint)  # before the first reset, which follows curricula
        if played.policy == "trained":
            return load_policy(env, config, path, checkpoint)
    if played.policy == "random":
        return RandomPolicy(env.action_bounds, played.seed)
    return ZeroPolicy(env.num_actions)


def _check_picture(env: EnvProtocol, row: int, camera: CameraCfg) -> None:
    """Takes one picture before there is a file, so that a wrong camera is bad input like any other."""
    try:
        env.render(row, camera)
    except KeyError as error:
        raise BadInputError(f"--camera: {error.args[0]}") from error


def _steps(env: EnvProtocol, steps: int | None, seconds: float | None) -> int:
    from unilab_core import seconds_to_steps

    if steps is not None:
        return steps
    if seconds is not None:
        return seconds_to_steps(seconds, env.step_dt)
    return min(env.max_episode_length, seconds_to_steps(_LONGEST_S, env.step_dt))
