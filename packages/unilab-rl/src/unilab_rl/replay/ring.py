"""A ring of transitions on the learner's device, from which windows of up to n steps are drawn uniformly."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, Final

import torch

from unilab_core import ConfigError
from unilab_rl.contracts.off_policy import Batch
from unilab_rl.contracts.replay import ReplayGoneError
from unilab_rl.replay.contents import (
    SLOT_PARTS,
    STORED,
    TERMINATED,
    TRUNCATED,
    check_state,
    pack_state,
)
from unilab_rl.replay.mark import Overwritten, ReplayMark
from unilab_rl.replay.memory import check_memory
from unilab_rl.replay.rows import TransitionLayout
from unilab_rl.targets import n_step_return

__all__ = ["Replay"]

_DRAWS: Final = 2**62
"""Draws are integers below it, taken modulo the number of windows: no window is likelier than another by more than
their number / 2^62."""


class Replay:
    """The last transitions of N environments, each observation kept once.

    Every environment has a ring of S = `capacity` + 1 slots and a head of its own. A slot holds the observation that
    was acted on, the action and the reward; the observation that the step led to is the one of the following slot.
    Where the next step doesn't go on from it, bit for bit, the following slot keeps it and the next step opens another:
    after the end of an episode (where it is the final observation), after a refused row, after `interrupt`, and where
    an environment was reset without a word. A transition therefore takes 4 (O + A + 1) + 5 bytes, O columns of all
    observation groups and A of actions, and an environment holds `capacity` transitions, less one for each such break
    among them.

    A window starts at a stored transition and goes on for up to n steps, until one of them ended the episode, the
    next one was refused or isn't there yet. Terminated and truncated are kept apart: a window that ends in a time-out
    is bootstrapped from the final observation.

    A row is refused, and counted, when it says so or when any of its numbers is not finite. No window holds it.

    Neither adding nor sampling waits for the device, the first sample excepted: it makes sure that there is something.

    Attributes:
        layout: The columns of a packed transition.
        num_envs: N.
        capacity: Steps that are kept of each environment.
        n_step: n, the longest window.
        gamma: The discount factor of a step.
        device: Where everything is.
    """

    def __init__(
        self,
        num_envs: int,
        capacity: int,
        groups: Mapping[str, int],
        num_actions: int,
        *,
        n_step: int,
        gamma: float,
        device: torch.device | str,
        seed: int,
    ) -> None:
        """Allocates everything.

        Args:
            num_envs: N.
            capacity: Steps to keep of each environment.
            groups: The width of each observation group.
            num_actions: A.
            n_step: n, the longest window, below `capacity`.
            gamma: The discount factor of a step, 0 to 1.
            device: Where the learner is.
            seed: Of the generator that windows are drawn with.

        Raises:
            ConfigError: A number is out of range, or the device has not enough memory left.
        """
        _check_numbers(num_envs, capacity, n_step, gamma)
        self.layout = TransitionLayout(groups, num_actions)
        self.num_envs, self.capacity, self.n_step, self.gamma = num_envs, capacity, n_step, gamma
        self._slots = capacity + 1
        width, cells = self.layout.stored_width, num_envs * self._slots
        self.bytes_per_transition: int = 4 * width + 5
        wanted = torch.device(device)
        check_memory(
            f"Replay: {capacity} steps x {num_envs} environments x {self.bytes_per_transition} bytes",
            cells * self.bytes_per_transition,
            wanted,
            "lower the capacity of the replay or the number of environments, or leave out an observation group",
        )
        # Also where the caller infers: what is born in inference mode can't be written outside of it.
        with torch.inference_mode(False):
            # One row more, which takes what is refused: so nobody has to ask which rows those are.
            self._rows = torch.zeros(cells + 1, width, device=wanted)
            self._codes = torch.zeros(cells + 1, dtype=torch.uint8, device=wanted)
            self._order = torch.zeros(cells + 1, dtype=torch.int32, device=wanted)
            self.device = self._rows.device
            counts = torch.zeros(3, num_envs, dtype=torch.int64, device=self.device)
            self._position, self._pushed, self._first = counts.unbind()
            self._held, self._cut = torch.zeros(2, num_envs, dtype=torch.bool, device=self.device).unbind()
            self._refused = torch.zeros((), dtype=torch.int64, device=self.device)
            self._base = torch.arange(num_envs, device=self.device) * self._slots
            self._steps = torch.arange(n_step, device=self.device)
            self._nowhere = torch.tensor(cells, device=self.device)
        self._observations = self._rows[:, : self.layout.obs_width]
        self._generator = torch.Generator(self.device).manual_seed(seed)
        self._num_adds = self._reached = 0
        self._newest_mark: weakref.ref[ReplayMark] | None = None

    @property
    def num_transitions(self) -> int:
        """How many windows there are to draw from; reading it waits for the device."""
        return int((self._pushed - self._first).sum())

    def __len__(self) -> int:
        return self.num_transitions

    @property
    def refused(self) -> torch.Tensor:
        """How many rows were refused so far, 0-d int64, a copy that nobody has read yet."""
        return self._refused.clone()

    def can_sample(self, batch_size: int) -> bool:
        """Whether it has held `batch_size` transitions at some time.

        Few refused rows or ends of episodes later make it no longer wait: draws are with replacement. The device is
        asked until it is true, and then no more.
        """
        if self._reached < batch_size <= self._num_adds * self.num_envs:
            self._reached = max(self._reached, self.num_transitions)
        return self._reached >= batch_size

    def add(
        self,
        obs: Mapping[str, torch.Tensor],
        actions: torch.Tensor,
        rewards: torch.Tensor,
        next_obs: Mapping[str, torch.Tensor],
        terminated: torch.Tensor,
        truncated: torch.Tensor,
        *,
        refused: torch.Tensor | None = None,
    ) -> None:
        """Stores copies of one step of all N environments.

        Arguments and errors are those of `TransitionLayout.pack`; everything is on `device`.
        """
        self.add_rows(
            self.layout.pack(obs, actions, rewards, next_obs, terminated, truncated, refused=refused)
        )

    @torch.no_grad()
    def add_rows(self, packed: torch.Tensor) -> None:
        """Stores one step of all N environments.

        Args:
            packed: (N, packed_width) float32 on `device`, as `layout.pack` makes it.

        Raises:
            TypeError: It is not float32.
            ValueError: Its shape or device is wrong.
        """
        self._check_packed(packed)
        width, base, slots = self.layout.stored_width, self._base, self._slots
        observed = packed[:, : self.layout.obs_width]
        following = packed[:, width : width + self.layout.obs_width]
        terminated, truncated = (packed[:, -3:-1] != 0).unbind(dim=1)
        accepted = packed.isfinite().all(dim=1) & (packed[:, -1] == 0)
        # Bits, not numbers: 0.0 and -0.0 are equal and yet not the same observation.
        kept = self._observations.index_select(0, base + self._position % slots)
        other = (kept.view(torch.int32) != observed.view(torch.int32)).any(dim=1)
        opens = accepted & self._held & (self._cut | other)
        position = self._position + opens
        slot = position % slots
        here, after = base + slot, base + (slot + 1) % slots
        evicted = (self._codes[here] != 0).long() + (self._codes[after] != 0)
        self._first.add_(evicted * accepted)
        here = torch.where(accepted, here, self._nowhere)
        after = torch.where(accepted, after, self._nowhere)
        place = torch.where(accepted, base + self._pushed % slots, self._nowhere)
        code = STORED + TERMINATED * terminated.to(torch.uint8) + TRUNCATED * truncated.to(torch.uint8)
        self._note(here, after, place)
        self._rows.index_copy_(0, here, packed[:, :width])
        self._observations.index_copy_(0, after, following)
        self._codes.index_copy_(0, after, torch.zeros_like(code))
        self._codes.index_copy_(0, here, code)
        self._order.index_copy_(0, place, slot.to(torch.int32))
        self._pushed.add_(accepted)
        self._position.copy_(position).add_(accepted)
        self._held.logical_or_(accepted)
        self._cut.copy_(terminated | truncated | ~accepted)
        self._refused.add_((~accepted).sum())
        self._num_adds += 1

    def _note(self, here: torch.Tensor, after: torch.Tensor, place: torch.Tensor) -> None:
        """Lets the newest mark, if anybody holds it, keep what a step is about to write over."""
        mark = self._held_mark()
        if mark is not None:
            written = (
                *((self._rows, here), (self._observations, after)),
                *((self._codes, here), (self._codes, after), (self._order, place)),
            )
            mark.note(Overwritten(cells, where, cells.index_select(0, where)) for cells, where in written)

    def interrupt(self) -> None:
        """Lets no window run on into the next step.

        For a run that goes on with an environment which starts anew, or where rows were reset by hand.
        """
        self._cut.fill_(True)

    @torch.no_grad()
    def sample(self, batch_size: int) -> Batch:
        """Draws windows uniformly among all, with replacement; the tensors are fresh.

        Raises:
            RuntimeError: Nothing is stored yet.
            ValueError: `batch_size` is not positive.
        """
        if batch_size < 1:
            raise ValueError(f"Replay.sample: batch_size is {batch_size}, expected at least 1")
        if not self.can_sample(1):
            raise RuntimeError(
                f"Replay.sample: nothing is stored: {self._num_adds} steps were added and {int(self._refused)} of "
                f"their rows refused; add transitions first"
            )
        env, start = self._draw(batch_size)
        base, slots, width = env * self._slots, self._slots, self.layout.stored_width
        cells = base.unsqueeze(1) + (start.unsqueeze(1) + self._steps) % slots
        codes = self._codes[cells]
        window = n_step_return(self._rows[:, width - 1][cells], codes > STORED, codes != 0, gamma=self.gamma)
        last = codes.gather(1, window.num_steps.unsqueeze(1) - 1).squeeze(1)
        first = self._rows.index_select(0, base + start)
        reached = self._observations.index_select(0, base + (start + window.num_steps) % slots)
        return Batch(
            obs=self.layout.split_obs(first),
            actions=first[:, self.layout.obs_width : width - 1],
            rewards=window.rewards,
            next_obs=self.layout.split_obs(reached),
            discounts=window.discounts,
            terminated=(last & TERMINATED) != 0,
        )

    def _draw(self, batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Draws B stored transitions uniformly; returns the environment and the slot of each, (B,) int64."""
        counts = self._pushed - self._first
        bounds = counts.cumsum(dim=0)
        draws = torch.randint(_DRAWS, (batch_size,), generator=self._generator, device=self.device)
        draws %= bounds[-1]
        env = torch.searchsorted(bounds, draws, right=True)
        # Of its environment, oldest first: `first` is the oldest and `bounds - counts` what other environments hold.
        place = (draws - (bounds - counts - self._first)[env]) % self._slots
        return env, self._order[env * self._slots + place].long()

    def mark(self) -> ReplayMark:
        """Returns the contents as they are now, heads, counts and generator included, without copying them.

        As long as somebody holds it, later steps can be undone: see `ReplayMark`. It doesn't wait for the device.
        """
        heads = {name: part for name, part in self._parts().items() if name not in SLOT_PARTS}
        mark = ReplayMark(heads, self._counters(), self.take_back)
        before = self._held_mark()
        if before is not None:
            before.following = mark
        self._newest_mark = weakref.ref(mark)
        return mark

    def take_back(self, mark: ReplayMark) -> dict[str, Any]:
        """Undoes everything since `mark`, one of its own, and returns the contents, tensors as views of its own.

        Raises:
            ReplayGoneError: It was loaded anew, or taken back farther, since.
        """
        marks = [mark]
        while (following := marks[-1].following) is not None:
            marks.append(following)
        newest = self._held_mark()
        if not any(newest is each for each in marks):
            raise ReplayGoneError(
                "Replay: loaded anew, or taken back farther, since the mark was made, so there is no way back to it"
            )
        for each in reversed(marks):
            each.undo()
        parts = self._parts()
        for name, head in mark.heads.items():
            parts[name].copy_(head)
        self._num_adds, self._reached = mark.counters["num_adds"], mark.counters["reached"]
        self._generator.set_state(mark.counters["generator"]["state"])
        mark.following, self._newest_mark = None, weakref.ref(mark)
        return pack_state(parts, self._describe())

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continues from the contents of a replay with the same rows and capacity; n and gamma may differ.

        The state of a generator of another kind of device can't be used; the own one then stays as it was seeded.

        Raises:
            ValueError: Something is missing, unknown or of another shape, dtype or range; nothing was changed.
        """
        parts = self._parts()
        used = check_state(state, parts, self._describe())
        self._newest_mark = None
        for name, part in parts.items():
            if name in SLOT_PARTS:
                part[:, :used].copy_(state[name])
            else:
                part.copy_(state[name])
        parts["codes"][:, used:].zero_()
        if state["generator"]["device"] == self.device.type:
            # A copy: of a view into something larger, torch would read what the larger begins with.
            self._generator.set_state(state["generator"]["state"].clone())
        self._num_adds, self._reached = state["num_adds"], state["reached"]

    def _held_mark(self) -> ReplayMark | None:
        """Returns the newest mark if anybody but the replay holds it."""
        return None if self._newest_mark is None else self._newest_mark()

    def _parts(self) -> dict[str, torch.Tensor]:
        """Returns live views of all that changes: those of slots (N, S, ...), all others as they are."""
        shape = (self.num_envs, self._slots)
        return {
            "rows": self._rows[:-1].view(*shape, -1),
            "codes": self._codes[:-1].view(shape),
            "order": self._order[:-1].view(shape),
            "position": self._position,
            "pushed": self._pushed,
            "first": self._first,
            "held": self._held,
            "cut": self._cut,
            "refused": self._refused,
        }

    def _describe(self) -> dict[str, Any]:
        """Returns what a state says beside its tensors."""
        return {
            "groups": dict(self.layout.groups),
            "num_actions": self.layout.num_actions,
            "num_envs": self.num_envs,
            "capacity": self.capacity,
            **self._counters(),
        }

    def _counters(self) -> dict[str, Any]:
        """Returns what of it changes."""
        return {
            "num_adds": self._num_adds,
            "reached": self._reached,
            "generator": {"device": self.device.type, "state": self._generator.get_state()},
        }

    def _check_packed(self, packed: torch.Tensor) -> None:
        if packed.dtype != torch.float32:
            raise TypeError(f"Replay.add_rows: the rows have dtype {packed.dtype}, expected torch.float32")
        expected = (self.num_envs, self.layout.packed_width)
        if tuple(packed.shape) != expected:
            raise ValueError(
                f"Replay.add_rows: the rows have shape {tuple(packed.shape)}, expected {expected}"
            )
        if packed.device != self.device:
            raise ValueError(f"Replay.add_rows: the rows are on {packed.device}, expected {self.device}")


def _check_numbers(num_envs: int, capacity: int, n_step: int, gamma: float) -> None:
    for name, value in (("num_envs", num_envs), ("n_step", n_step)):
        if value < 1:
            raise ConfigError(f"Replay: {name} is {value}, expected at least 1")
    if capacity <= n_step:
        raise ConfigError(
            f"Replay: capacity is {capacity} steps of each environment and n_step {n_step}, expected a capacity above "
            "n_step; a window would run into its own start"
        )
    if not 0.0 <= gamma <= 1.0:
        raise ConfigError(f"Replay: gamma is {gamma}, expected 0 <= gamma <= 1")
