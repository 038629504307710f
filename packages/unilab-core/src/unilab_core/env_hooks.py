"""The phases of an environment: what a subclass of `TorchEnv` fills in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import torch

from unilab_core.reset_transaction import EpisodeLog
from unilab_core.state import Observations
from unilab_core.verdict import check_flags, check_rows

__all__ = ["EnvHooks"]


class EnvHooks(ABC):
    """One hook per phase. N rows, K selected rows; `ids` are (K,) int64, ascending, K > 0.

    In a step: `_control`, `_begin_step`, physics with `_follow` between substeps, `_terminations`, `_rewards`,
    `_advance`, `_measure`, `_observe(None)`, `_timers`, `_timers_judged`, `_after_step`. In a reset:
    `_on_episodes_end`, `_stage_reset`, `_before_commit`, the commit, `_clear_rows`, `_after_commit`, `_observe(ids)`,
    `_after_reset`.
    """

    num_envs: int
    """N, the number of rows."""

    @property
    @abstractmethod
    def num_actions(self) -> int:
        """A, the width of an action."""

    @property
    @abstractmethod
    def action_bounds(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(A,) lower and (A,) upper bounds that a squashing policy should use; may be infinite."""

    @property
    @abstractmethod
    def obs_groups_spec(self) -> dict[str, int]:
        """`{"obs": dim[, "critic": dim]}`: the only thing that sizes a network."""

    @abstractmethod
    def _control(self, actions: torch.Tensor) -> torch.Tensor:
        """Returns the control, (N, nu) float32, for checked (N, A) actions; changes nothing yet.

        Wrenches are not part of it: core appends what `EntityData.write_wrench` keeps.
        """

    def _following(self) -> tuple[str, ...]:
        """Returns whose controls follow the state from substep to substep, by label; nobody's by default.

        If anybody's do, every substep writes one control and reads everything once, instead of every step.
        """
        return ()

    def _follow(self, control: torch.Tensor) -> torch.Tensor:
        """Returns the control of the next substep, (N, nu) float32, given that of the one before, (N, nu).

        Called between substeps, with reads fresh, and only where `_following` names somebody. What is not finite counts
        as 0: it ends rows that the engine calls bad, and is an error in any other row.
        """
        return control

    @abstractmethod
    def _terminations(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns (N,) bool terminated and (N,) bool truncated at the new state."""

    @abstractmethod
    def _rewards(self) -> torch.Tensor:
        """Returns (N,) float32 rewards of the transition."""

    @abstractmethod
    def _observe(self, ids: torch.Tensor | None) -> Observations:
        """Returns the observations of all rows (None) or of `ids`, by group, (N or K, dim) float32."""

    @abstractmethod
    def _stage_reset(self, ids: torch.Tensor) -> None:
        """Writes the new state of the rows, which the staging area starts at the default state."""

    def _stage_startup(self, ids: torch.Tensor) -> None:
        """Writes model fields of all rows once, after construction; resets randomise from these values."""

    def _row_state_roots(self) -> dict[str, object]:
        """Returns objects whose attributes a rejected reset must put back, by name, beyond the environment's own."""
        return {}

    def _explain_non_finite(self) -> str:
        """Returns what more there is to say about non-finite values, for example which reward term they come from."""
        return ""

    def _forget_non_finite(self, ids: torch.Tensor) -> None:
        """Makes sums finite again that non-finite values of the rows went into."""

    def _asked(self) -> Mapping[str, Sequence[str]]:
        """Returns who asks for what of the backend, as `check_declared` takes it; runs before `_build`."""
        return {}

    def _build(self) -> None:
        """Makes everything that needs the scene; runs once, before reads are recorded."""

    def _begin_step(self) -> None:
        """The action is accepted: buffers of actions may change now."""

    def _advance(self) -> None:
        """Step and interval events, commands."""

    def _measure(self) -> dict[str, torch.Tensor]:
        """Returns what to log about this step, 0-d tensors by key."""
        return {}

    def _timers(self) -> dict[str, torch.Tensor]:
        """Returns for each timer, by name, whether it fires in the next step: (N,) bool per row, or 0-d bool for all.

        The answers travel in the one verdict that a step reads after its observations, so that a step in which nothing
        is due need not ask the device, and can do nothing at all. The names must be those of every other step.
        """
        return {}

    def _timers_judged(self, due: Mapping[str, bool]) -> None:
        """Takes, for each timer of `_timers`, whether it fires in any row in the next step; runs in every step.

        The answer is about the next step only. Where none was given, a timer may fire (True): its owner starts so
        itself, after construction, and sets it so itself for what it redraws in a reset, which happens after the
        verdict. Answers are kept in plain attributes, so that `load_state_dict` puts them back with the timers that
        they are about; loading asks nobody again.
        """

    def _after_step(self) -> None:
        """The transition is complete and its observations are written; no row has been reset yet."""

    def _on_episodes_end(self, ids: torch.Tensor) -> None:
        """The finished transition is still visible, bodies and sensors included."""

    def _before_commit(self, ids: torch.Tensor) -> None:
        """The last look at the finished transition."""

    def _clear_rows(self, ids: torch.Tensor) -> EpisodeLog:
        """Clears the rows' buffers; returns `<key>/sum` and `<key>/count` about their episodes."""
        return {}

    def _after_commit(self, ids: torch.Tensor) -> None:
        """The rows hold their new state, reads fresh."""

    def _after_reset(self, ids: torch.Tensor) -> None:
        """Everything about the rows is new."""

    def _before_close(self) -> None:
        """The environment is being closed, perhaps after a fault: flush and release what is not the backend's."""

    def _recordable_calls(self) -> list[tuple[str, Callable[[], object]]]:
        """Returns labelled calls that read everything a step or a reset will read, in step order."""
        name = type(self).__name__
        return [
            (
                "terminations",
                lambda: check_flags(self._terminations(), self.num_envs, f"{name}._terminations"),
            ),
            (
                "rewards",
                lambda: check_rows(self._rewards(), torch.float32, self.num_envs, f"{name}._rewards"),
            ),
            ("advance", self._advance),
            ("measure", self._measure),
            ("observations", lambda: self._observe(None)),
        ]
