"""What a backend knows about this machine: findings, and a watch over the kernels that it compiles.

`unilab doctor` asks every backend of the entry-point group `unisim.doctors`. Nothing here imports Torch or an engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import ClassVar, Literal, get_args

__all__ = ["BackendDoctor", "CompilationRefused", "Finding", "KernelReport", "State", "find_doctor"]

GROUP = "unisim.doctors"

State = Literal["ok", "missing", "broken", "note"]
"""Works; not installed, which is nobody's fault; installed and does not work; works, and there is something to know."""


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
        name: What was looked at, in a few words: `"engine"`.
        state: See `State`.
        text: One or two sentences, with the versions and values that were seen.
        remedy: What to do about it, where there is something to do.
    """

    name: str
    state: State
    text: str
    remedy: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for a state that is none: a doctor of a third party is not type-checked here."""
        if self.state not in get_args(State):
            raise ValueError(
                f"Finding {self.name!r}: state is {self.state!r}, expected one of {get_args(State)}"
            )


@dataclass
class KernelReport:
    """What was counted while a backend ran under a watch.

    Attributes:
        cached: Kernel modules that were read from the cache.
        compiled: Kernel modules that had to be compiled, and are in the cache now.
        compile_s: What compiling them took, s.
    """

    cached: int = 0
    compiled: int = 0
    compile_s: float = 0.0


class CompilationRefused(BaseException):
    """A kernel would have to be compiled, and the watch does not allow it.

    Not an `Exception`, so that no handler of an engine takes it for a failure of its own.
    """


class BackendDoctor(ABC):
    """What one backend can say about itself.

    It is made without arguments, and making it imports no engine; the entry point of group `unisim.doctors` has the
    backend's name and names its class.

    Attributes:
        runs_sample_scene: Whether the backend takes models of the kind that `unisim.sample_scene` is made of. If not,
            it is tried with tasks only.
    """

    runs_sample_scene: ClassVar[bool] = True

    @abstractmethod
    def checks(self) -> Mapping[str, Callable[[], Finding]]:
        """Returns the backend's own checks by name, in the order in which they are made.

        A check may crash or hang: each runs in a process that may be lost, and its name is what is reported then. The
        first one says whether the engine is there; unless it finds `"ok"` or `"note"`, no later one is made.
        """

    def kernels(self, label: str, *, allow_compiling: bool) -> AbstractContextManager[KernelReport] | None:
        """Returns a watch over the kernels that are loaded inside, or None: this backend compiles none.

        The watch reports progress to the logger `unisim` while something is compiled.

        Args:
            label: What they are for, as the progress shows it.
            allow_compiling: If not, the first kernel that is not in the cache raises `CompilationRefused`, before
                anything is compiled.
        """
        del label, allow_compiling
        return None


def find_doctor(backend: str) -> BackendDoctor | None:
    """Returns the doctor of a backend by its name, or None: it brings none.

    Raises:
        TypeError: The entry point names something that makes no `BackendDoctor`.
    """
    for entry in entry_points(group=GROUP):
        if entry.name == backend:
            doctor = entry.load()()
            if not isinstance(doctor, BackendDoctor):
                raise TypeError(
                    f"entry point {backend!r} of {GROUP!r}: {entry.value} makes a {type(doctor).__name__}, "
                    "expected a BackendDoctor"
                )
            return doctor
    return None
