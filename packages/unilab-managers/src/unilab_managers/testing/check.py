"""`check_task`: all checks of a task in one call, for its tests."""

from __future__ import annotations

from collections.abc import Iterable

from unilab_core.factory import Overrides
from unilab_managers.checking.findings import CheckReport
from unilab_managers.checking.running import NUM_ENVS, run_checks
from unilab_managers.env_cfg import TermsCfg

__all__ = ["check_task"]


def check_task(
    task: str | TermsCfg,
    *,
    overrides: Overrides = (),
    backend: str = "mujoco",
    device: str = "cpu",
    num_envs: int = NUM_ENVS,
    seed: int = 0,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
) -> CheckReport:
    """Checks a task as `unilab check` does, and fails if anything is wrong.

    ```python
    def test_my_task() -> None:
        check_task("my-task")
    ```

    Args:
        task: Name of a registered task, or a config.
        overrides: Dotted path to value, or texts `"path.to.field=value"`.
        backend: Name of a physics backend.
        device: Torch device.
        num_envs: N, at least 3.
        seed: The first seed; some checks use the ones after it too.
        only: Names of the checks to run; empty: all.
        skip: Names of checks to leave out.

    Returns:
        The report, with its notes.

    Raises:
        AssertionError: There are findings; the message lists them all, one a line.
        UnknownNameError: No such task.
        ConfigError: An override is wrong, there is no such check, fewer than 3 rows, or the task has no terms.
        CapabilityError: The backend or device cannot do what the task needs.
    """
    report = run_checks(
        task,
        overrides=overrides,
        backend=backend,
        device=device,
        num_envs=num_envs,
        seed=seed,
        only=only,
        skip=skip,
    )
    if not report.is_clean:
        lines = "\n".join(f"  {finding.in_text()}" for finding in report.findings)
        raise AssertionError(f"{report.task}: {len(report.findings)} findings\n{lines}")
    return report
