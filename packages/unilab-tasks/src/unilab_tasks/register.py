"""Registers the tasks of this package; imports neither torch nor an engine."""

from unilab_core.registry import TaskSpec, register_task

__all__ = ["register"]


def register() -> None:
    """Adds every task; called through the entry point `unilab.tasks`."""
    for name, summary in (
        ("balance", "Keep the pole of a cart upright"),
        ("swingup", "Swing the pole of a cart up and keep it upright"),
    ):
        register_task(
            TaskSpec(
                name=f"cartpole-{name}",
                env_cfg=f"unilab_tasks.cartpole.env_cfg:cartpole_{name}",
                learners={
                    algorithm: f"unilab_tasks.cartpole.learners:{name}_{algorithm}"
                    for algorithm in ("ppo", "sac", "td3", "fast_sac", "fast_td3", "flash_sac")
                },
                summary=summary,
            )
        )
    register_task(
        TaskSpec(
            name="velocity-flat-quadruped",
            env_cfg="unilab_tasks.velocity.env_cfg:velocity_flat_quadruped",
            learners={"ppo": "unilab_tasks.velocity.learners:quadruped_ppo"},
            summary="Walk on flat ground as commanded, with four legs",
            evaluation="unilab_tasks.velocity.env_cfg:evaluation",
        )
    )
