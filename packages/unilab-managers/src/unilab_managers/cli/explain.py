"""`unilab explain`: what a task consists of, before anything is trained."""

from __future__ import annotations

import json

import click

from unilab_managers.cli.shared import backend_option, json_option, overrides_option

__all__ = ["command"]

_EXAMPLES = """\b
Examples:
  unilab explain cartpole-balance
  unilab explain cartpole-balance --set "rewards.smooth.weight=2" --json
"""


@click.command("explain", epilog=_EXAMPLES)
@click.argument("task")
@backend_option
@click.option("--num-envs", type=click.IntRange(min=1), help="Rows; by default the task's own.")
@overrides_option
@json_option
def command(task: str, backend: str, num_envs: int | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Shows every term of TASK, the layout of observations, actions and control, and what a step transfers.

    The columns of observations stand in the order in which a policy gets them.
    """
    from contextlib import closing

    from unilab_core import make_env
    from unilab_managers.env import ManagerBasedRlEnv

    with closing(make_env(task, backend=backend, num_envs=num_envs, overrides=overrides)) as env:
        if as_json:
            facts = {"task": task.lower(), "backend": backend, "num_envs": env.num_envs}
            click.echo(json.dumps(facts | env.describe().to_data(), indent=2))
        elif isinstance(env, ManagerBasedRlEnv):
            click.echo(f"{task.lower()} on {backend}\n{env}")
        else:
            raise click.UsageError(
                f"{task} is a {type(env).__name__}, which has no managers to explain; --json describes any environment"
            )
