"""Which device this process uses: its own one of the machine's, decided before backend and tensors exist."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from unilab_core.errors import CapabilityError
from unisim.capabilities import device_problem

__all__ = ["ProcessDevice", "resolve_device"]

_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
_TYPES = ("cpu", "cuda")


def resolve_device(device: str | torch.device) -> torch.device:
    """Returns the device with its index, as tensors on it carry it.

    Raises:
        RuntimeError: No torch device.
        CapabilityError: A CUDA device that is not there.
    """
    wanted = torch.device(device)
    if wanted.type != "cuda":
        return wanted
    if problem := device_problem(str(wanted), _TYPES):
        raise CapabilityError(problem)
    return torch.device("cuda", _index(wanted, torch.cuda.current_device()))


def _index(device: torch.device, otherwise: int) -> int:
    index: int | None = device.index  # torch declares an int, and gives None where none was named
    return otherwise if index is None else index


@dataclass(frozen=True)
class ProcessDevice:
    """The place of one process among those of a run.

    Attributes:
        device: Its device; of CUDA always with an index.
        rank: Its number among all processes.
        local_rank: Its number among the processes of this machine.
        world_size: How many processes there are.
    """

    device: torch.device
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1

    @classmethod
    def bind(cls, device: str = "cpu", *, environ: Mapping[str, str] | None = None) -> ProcessDevice:
        """Binds this process to its device; call it before a backend or a tensor is made.

        Args:
            device: `"cpu"`, or `"cuda"` for the device of this process's local rank, or `"cuda:<index>"` where there is
                one process only.
            environ: Where `RANK`, `LOCAL_RANK` and `WORLD_SIZE` are looked up, as `torchrun` sets them; the process's
                environment by default. Without them there is one process.

        Raises:
            ValueError: The variables are incomplete or contradict each other, or several processes ask for one index.
            CapabilityError: The device is not there.
        """
        rank, local_rank, world_size = _ranks(os.environ if environ is None else environ)
        wanted = torch.device(device)
        if wanted.type == "cuda" and world_size > 1 and _index(wanted, local_rank) != local_rank:
            raise ValueError(
                f"ProcessDevice.bind: device {device!r} with WORLD_SIZE={world_size} and LOCAL_RANK={local_rank}; "
                "pass 'cuda', each process then takes the device of its local rank"
            )
        if wanted.type == "cuda":
            wanted = torch.device("cuda", _index(wanted, local_rank))
        if problem := device_problem(str(wanted), _TYPES):
            raise CapabilityError(f"ProcessDevice.bind: {problem}")
        if wanted.type == "cuda":
            torch.cuda.set_device(wanted)
        return cls(wanted, rank, local_rank, world_size)


def _ranks(environ: Mapping[str, str]) -> tuple[int, int, int]:
    given = {name: environ[name] for name in _VARIABLES if name in environ}
    if not given:
        return 0, 0, 1
    missing = [name for name in _VARIABLES if name not in given]
    if missing:
        raise ValueError(
            f"ProcessDevice.bind: {sorted(given)} are set, {missing} are not; start with torchrun"
        )
    values = {}
    for name, text in given.items():
        if not text.isdecimal():
            raise ValueError(f"ProcessDevice.bind: {name} is {text!r}, expected a whole number >= 0")
        values[name] = int(text)
    rank, local_rank, world_size = (values[name] for name in _VARIABLES)
    if not local_rank <= rank < world_size:
        raise ValueError(
            f"ProcessDevice.bind: RANK={rank}, LOCAL_RANK={local_rank}, WORLD_SIZE={world_size}; "
            "expected LOCAL_RANK <= RANK < WORLD_SIZE"
        )
    return rank, local_rank, world_size
