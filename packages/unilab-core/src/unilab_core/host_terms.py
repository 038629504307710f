"""`@host_term`: terms that compute on the host, on copies of the columns they name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import torch

from unilab_core.reads import check_keys

if TYPE_CHECKING:
    from unilab_core.scene import EntityScene

__all__ = ["HostTermRunner", "host_keys", "host_term", "is_host_term"]

F = TypeVar("F", bound=Callable[..., Any])
_ATTRIBUTE = "__unilab_host_term__"


def host_term(*keys: str) -> Callable[[F], F]:
    """Marks a term `f(env, host, **params)` that runs on the host, at most once per read.

    `host` maps each of `keys` to its columns as last read, (N, width) float32 on the CPU: copies of the term's own.
    What the step has written since is not in them until it is flushed. The term returns a CPU tensor with N first;
    it arrives on the environment's device. Each run costs one transfer to the host and one back, counted in
    `transfer_stats.host`; on a DEVICE_RESIDENT backend such a term is a CapabilityError.

    Args:
        keys: `"qpos"`, `"qvel"`, `"ctrl"`, `"qacc"`, `"actuator_force"`, `"sensor:<name>"`, `"body:<name>"`,
            `"site:<name>"` or `"substep:<sensor>"`, names as in the composed model.

    Raises:
        ValueError: No key, one given twice, or a key of another form.
    """
    if not keys or len(set(keys)) < len(keys):
        raise ValueError(f"host_term: got keys {keys}; expected at least one, each once")
    check_keys(keys, "host_term")

    def mark(function: F) -> F:
        setattr(function, _ATTRIBUTE, keys)
        return function

    return mark


def is_host_term(function: object) -> bool:
    """Whether a function, or an object by its `__call__`, is marked by `@host_term`."""
    return bool(host_keys(function))


def host_keys(function: object) -> tuple[str, ...]:
    """Returns the keys of a host term; empty for any other."""
    keys: tuple[str, ...] = getattr(function, _ATTRIBUTE, ())
    if not keys and not isinstance(function, type):
        # Of a class term that was made: the mark is on its method.
        keys = getattr(type(function).__call__, _ATTRIBUTE, ()) if callable(function) else ()
    return keys


class _Env(Protocol):
    """What a runner needs of its environment."""

    num_envs: int
    scene: EntityScene


class HostTermRunner:
    """A host term of one environment, called like any other: `runner(env, **params)`.

    Its result is kept until columns change again (the read of a step, a flush of what events wrote, a reset, a loaded
    state) or it is called with other parameters, so that no row ever sees values from before its own reset. A rejected
    reset puts back what was kept, so that the term runs as often as if nobody had tried.
    """

    row_settings: ClassVar[tuple[str, ...]] = (
        *("_call", "_keys", "_label", "_n", "_version", "_params", "_values"),
    )
    """What is kept follows from the columns; what the term itself remembers is state like that of any other."""

    def __init__(self, call: Callable[..., Any], env: _Env, label: str) -> None:
        """Adds the term's columns to what every step reads; for the construction of terms.

        Args:
            call: A function or object for which `is_host_term` holds.
            env: The environment.
            label: Whose it is, for error messages, for example `"rewards term 'x'"`.

        Raises:
            CapabilityError: The state lives on a device, from which nothing is copied; names the term.
            KeyError: A key that the model does not have; the message lists the nearest.
        """
        self._call = call
        self._keys = host_keys(call)
        self._label = label
        self._n = env.num_envs
        self._version = -1
        self._params: dict[str, Any] = {}
        self._values = torch.empty(0)
        env.scene.declare_host_reads(self._keys, label)

    def __call__(self, env: _Env, **params: Any) -> torch.Tensor:  # noqa: ANN401 - a term's own types
        """Returns the term's values on the environment's device, N first; the same tensor until columns change.

        Raises:
            TypeError: The term returned no tensor.
            ValueError: The term returned a tensor on another device than the CPU, or without N rows first.
            RuntimeError: A reset is being staged: body and sensor values are defined after the commit.
        """
        version = env.scene.reads_version(self._label)
        if version != self._version or not _same(params, self._params):
            host = env.scene.host_columns(self._keys, self._label)
            values = self._check(self._call(env, host, **params))
            self._values = env.scene.from_host(values, self._label)
            self._version, self._params = version, params
        return self._values

    def _check(self, values: object) -> torch.Tensor:
        if not isinstance(values, torch.Tensor):
            raise TypeError(f"{self._label} returned a {type(values).__name__}, expected a CPU tensor")
        if values.device.type != "cpu" or values.shape[:1] != (self._n,):
            raise ValueError(
                f"{self._label} returned {tuple(values.shape)} on {values.device}, expected ({self._n}, ...) on cpu: "
                "a host term computes on the host, and core moves its result"
            )
        return values


def _same(now: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether parameters are the very same objects: comparing tensors would be ambiguous."""
    return now.keys() == before.keys() and all(value is before[name] for name, value in now.items())
