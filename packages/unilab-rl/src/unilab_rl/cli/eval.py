"""`unilab eval`: measures the deterministic policy of a run over whole episodes."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unilab_rl.cli.shared import RUNS, SEED, failures_as_messages, find_run

if TYPE_CHECKING:
    from unilab_rl.checkpoint import Checkpoint
    from unilab_rl.run_config import RunConfig
    from unilab_rl.runtime.evaluate import Evaluation

__all__ = ["command"]

_EXAMPLES = """\b
Examples:
  unilab train cartpole-balance --num-envs 64 --iterations 20
  unilab eval latest
  unilab eval latest --episodes 256 --json
"""


@click.command("eval", epilog=_EXAMPLES)
@click.argument("run", default="latest")
@click.option(
    "--episodes", type=click.IntRange(min=1), default=64, show_default=True, help="Whole episodes to run."
)
@click.option("--seed", type=SEED, help="Seed of the episodes; by default not one used in training.")
@click.option(
    "--backend", metavar="NAME", help="Physics backend; by default the run's (another one is sim-to-sim)."
)
@click.option("--device", metavar="DEVICE", help="Torch device; by default the run's.")
@click.option("--baseline", is_flag=True, help="Also measure a policy that does nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--runs", type=RUNS, default=Path("runs"), help="Folder of all runs.")
def command(
    run: str,
    episodes: int,
    seed: int | None,
    backend: str | None,
    device: str | None,
    baseline: bool,
    as_json: bool,
    runs: Path,
) -> None:
    """Measures a run's policy over whole episodes.

    RUN is a run's folder, one of its checkpoints, or 'latest' (the default). The policy acts without exploration
    noise, in the environment as it was trained, whatever randomisation that has.

    Every environment contributes the same number of episodes, so short ones count no more than long ones. Above 1024
    episodes the number is rounded up to what divides evenly.
    """
    from unilab_rl.checkpoint import latest_checkpoint, load_checkpoint
    from unilab_rl.run_config import MAX_SEED

    with failures_as_messages():
        folder, path = find_run(run, runs)
        config = folder.config()
        path = path or latest_checkpoint(folder.checkpoints)
        checkpoint = load_checkpoint(path)
        # A million ahead of the run's seed: clear of those that training and its resumes use.
        seed = (config.seed + 1_000_000) % (MAX_SEED + 1) if seed is None else seed
        backend, device = backend or config.backend, device or config.device
        results = _measure(config, checkpoint, path, backend, device, episodes, seed, baseline)
    facts = {
        "task": config.task,
        "checkpoint": str(path),
        "iteration": checkpoint.iteration,
        "backend": backend,
        "device": device,
        "seed": seed,
    }
    if as_json:
        click.echo(json.dumps(facts | {name: asdict(result) for name, result in results.items()}, indent=2))
    else:
        click.echo(f"{config.task}, {path}: backend {backend}, device {device}, seed {seed}")
        for name, result in results.items():
            click.echo(f"{name}: {_describe(result)}")


def _measure(
    config: RunConfig,
    checkpoint: Checkpoint,
    path: Path,
    backend: str,
    device: str,
    episodes: int,
    seed: int,
    baseline: bool,
) -> dict[str, Evaluation]:
    from contextlib import closing

    from unilab_core import make_env
    from unilab_rl.checkpoint import CheckpointError
    from unilab_rl.registry import get_algorithm
    from unilab_rl.runtime.evaluate import ZeroPolicy, evaluate, split_episodes
    from unilab_rl.runtime.session import import_training_state, learner_state

    algorithm = get_algorithm(config.algorithm)
    algorithm.require()
    rows, per_row = split_episodes(episodes)
    with closing(make_env(config.env, backend=backend, device=device, num_envs=rows, seed=seed)) as env:
        import_training_state(env, path, checkpoint)  # before the first reset, which follows curricula
        try:
            policies: dict[str, Any] = {
                "policy": algorithm.make_policy(env, config.learner, learner_state(checkpoint))
            }
        except ValueError as error:
            raise CheckpointError(f"{path}: doesn't fit the environment: {error}") from error
        if baseline:
            policies["zero_policy"] = ZeroPolicy(env.num_actions)
        return {
            name: evaluate(env, policy, episodes_per_env=per_row, seed=seed)
            for name, policy in policies.items()
        }


def _describe(result: Evaluation) -> str:
    interval = "" if result.return_ci95 is None else f" +- {result.return_ci95:.3g}"
    return (
        f"return {result.return_mean:.4g}{interval} (95 % interval, {result.episodes} episodes), "
        f"length {result.length_mean:.4g} steps, reward {result.reward_per_step:.4g} per step "
        f"({result.reward_per_s:.4g} per s), terminated {result.terminated_share:.0%}, "
        f"timed out {result.truncated_share:.0%}"
    )
