"""The global random generator of torch, borrowed: rsl-rl samples from no other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from unilab_rl.state_parts import check_generator_state

__all__ = ["BorrowedGlobalRng"]


class BorrowedGlobalRng:
    """A random stream of its own that stands in for torch's global generator while it is borrowed.

    What runs inside draws from this stream, whatever anybody else drew before; what runs outside finds the global
    generator as it left it.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self._cuda = [device.index or 0] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=self._cuda):
            torch.manual_seed(seed)
            self._state = self._read()

    @contextmanager
    def borrowed(self) -> Iterator[None]:
        """Lets the enclosed code draw from this stream; after an exception the stream is where it was before."""
        with torch.random.fork_rng(devices=self._cuda):
            self._write(self._state)
            yield
            self._state = self._read()

    def state(self) -> dict[str, Any]:
        """Returns the generator states, `"cpu"` and `"cuda"` (`None` off CUDA), each a uint8 tensor."""
        return {name: None if value is None else value.clone() for name, value in self._state.items()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continues from what `state` returned; a state from a CPU run leaves the CUDA stream seeded as it was.

        Raises:
            ValueError: Another form of state; nothing was changed.
        """
        if set(state) != {"cpu", "cuda"}:
            raise ValueError(f"the random state has {sorted(state)}, expected 'cpu' and 'cuda'")
        cpu = check_generator_state("the random state 'cpu'", "cpu", state["cpu"])
        cuda = self._state["cuda"]
        if self._cuda and state["cuda"] is not None:
            cuda = check_generator_state("the random state 'cuda'", f"cuda:{self._cuda[0]}", state["cuda"])
        self._state = {"cpu": cpu, "cuda": cuda}

    def _read(self) -> dict[str, torch.Tensor | None]:
        cuda = torch.cuda.get_rng_state(self._cuda[0]) if self._cuda else None
        return {"cpu": torch.get_rng_state(), "cuda": cuda}

    def _write(self, state: dict[str, torch.Tensor | None]) -> None:
        assert state["cpu"] is not None
        torch.set_rng_state(state["cpu"])
        if state["cuda"] is not None:
            torch.cuda.set_rng_state(state["cuda"], self._cuda[0])
