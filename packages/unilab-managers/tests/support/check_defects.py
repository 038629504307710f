"""Terms with one fault each, for `unilab check` to find."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import check_memory
import numpy as np
import torch
from check_support import Place, PlaceCfg, kick, with_terms

from unilab_core.writes import writes
from unilab_managers import ManagerBasedRlEnv, ManagerBasedRlEnvCfg, RewardTermCfg, mdp
from unilab_managers.mdp.actions.joint_actions import AffineJointTerm

PROBE = mdp.columns(unit="", names=mdp.fixed_columns("a", "b"))


# ---------------------------------------------------------------- observations and rewards with a fault


@PROBE
def half_constant(env: ManagerBasedRlEnv) -> torch.Tensor:
    """The second column never changes."""
    position = env.scene["robot"].data.joint_pos[:, 0]
    return torch.stack([position, torch.full_like(position, 0.25)], dim=1)


@PROBE
class CountsWhenMoved:
    """Its reading advances it, but only once something has moved: trying it at construction does not show it."""

    def __init__(self, cfg: Any, env: ManagerBasedRlEnv) -> None:
        self.count = torch.zeros(env.num_envs, 1)

    def __call__(self, env: ManagerBasedRlEnv) -> torch.Tensor:
        if env.step_counter:
            self.count += 0.1
        return torch.cat([self.count, env.scene["robot"].data.joint_pos[:, :1]], dim=1)


@PROBE
def noisy_from_env(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Draws whenever it is read."""
    return env.rng.uniform(-1.0, 1.0, (env.num_envs, 2))


@PROBE
def noisy_from_torch(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Draws from torch's own generator."""
    return torch.rand(env.num_envs, 2)


_steps = 0


@PROBE
def counts_in_a_global(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Remembers in a module global how often it was asked."""
    global _steps
    _steps += 1
    return env.scene["robot"].data.joint_pos + _steps * 1e-3


def _counted(term: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    count = 0

    @functools.wraps(term)
    def wrapper(env: ManagerBasedRlEnv) -> torch.Tensor:
        nonlocal count
        count += 1
        return term(env)

    return wrapper


@_counted
def counts_in_a_closure(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Remembers in a closure how often it was asked."""
    return env.scene["robot"].data.joint_vel[:, 0].abs()


class CountsInItsClass:
    """Remembers in its class, which all environments share."""

    calls: ClassVar[dict[str, int]] = {"number": 0}

    def __init__(self, cfg: Any, env: ManagerBasedRlEnv) -> None:
        pass

    def __call__(self, env: ManagerBasedRlEnv) -> torch.Tensor:
        self.calls["number"] += 1
        return env.scene["robot"].data.joint_vel[:, 0].abs()


def without_names(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Says neither names nor units."""
    return env.scene["robot"].data.joint_vel * 2.0


def one_column(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Has one column, of which it says nothing."""
    return env.scene["robot"].data.joint_pos[:, :1] * 2.0


def zero(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Is never anything."""
    return (env.scene["robot"].data.joint_pos[:, 0] - 5.0).clamp(min=0.0)


def speed(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns the speed of the slider, (N,)."""
    return env.scene["robot"].data.joint_vel[:, 0].abs()


def waits(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Asks the device for a number."""
    fastest = env.scene["robot"].data.joint_vel.abs().max().item()
    return speed(env) / (fastest + 1.0)


def puts_values(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Puts values where a mask holds, of which the host must know how many there are."""
    values = speed(env).clone()
    mask = values > -1.0
    values[mask] = torch.full((env.num_envs,), 0.5)
    return values + speed(env)


def fills_in(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Puts one number where a mask holds, which waits for nobody, and moves to where it is already."""
    values = speed(env).clone()
    values[values > 0.1] = 0.1
    return values.to(env.device)


def goes_home(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Computes on the host."""
    return speed(env).to("cpu").to(env.device)


def counts_in_a_helper(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Remembers in another module how often it was asked."""
    check_memory.count += 1
    return speed(env)


def imports_a_helper(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Remembers in another module that it imports itself."""
    import check_memory as memory

    memory.seen["often"] += 1
    return speed(env)


def reads_a_helper(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Uses another module and changes nothing there."""
    return check_memory.SCALE * speed(env)


class NeverForgets:
    """Sums up over episodes: its reset does nothing."""

    def __init__(self, cfg: Any, env: ManagerBasedRlEnv) -> None:
        self.total = torch.zeros(env.num_envs)

    def __call__(self, env: ManagerBasedRlEnv) -> torch.Tensor:
        self.total += speed(env)
        return self.total

    def reset(self, env_ids: torch.Tensor) -> None:
        pass


class KeepsWhatItNeverLooksAt:
    """Has a reset that leaves old values where only a flag, which it clears, leads."""

    def __init__(self, cfg: Any, env: ManagerBasedRlEnv) -> None:
        self.before = torch.zeros(env.num_envs)
        self.is_known = torch.zeros(env.num_envs, dtype=torch.bool)

    def __call__(self, env: ManagerBasedRlEnv) -> torch.Tensor:
        now = speed(env)
        gone = torch.where(self.is_known, (now - self.before).abs(), 0.0)
        self.before.copy_(now)
        self.is_known.fill_(True)
        return gone

    def reset(self, env_ids: torch.Tensor) -> None:
        self.is_known[env_ids] = False


def overflows(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Is not finite from the third step of an episode on."""
    return torch.where(env.episode_length > 2, torch.inf, 1.0)


class Leaks:
    """Clears everybody when anybody is reset."""

    def __init__(self, cfg: Any, env: ManagerBasedRlEnv) -> None:
        self.total = torch.zeros(env.num_envs)

    def __call__(self, env: ManagerBasedRlEnv) -> torch.Tensor:
        self.total += env.scene["robot"].data.joint_vel[:, 0].abs()
        return self.total

    def reset(self, env_ids: torch.Tensor) -> None:
        self.total.zero_()


class SharesOneNumber:
    """Has one number for all rows, which any reset changes."""

    def __init__(self, cfg: Any, env: ManagerBasedRlEnv) -> None:
        self.resets = 0

    def __call__(self, env: ManagerBasedRlEnv) -> torch.Tensor:
        return speed(env) + self.resets

    def reset(self, env_ids: torch.Tensor) -> None:
        self.resets += 1


class BornLate:
    """Makes an attribute when it is first called in a step."""

    def __init__(self, cfg: Any, env: ManagerBasedRlEnv) -> None:
        pass

    def __call__(self, env: ManagerBasedRlEnv) -> torch.Tensor:
        if env.step_counter:
            self.last = speed(env).clone()
        return speed(env)


def always(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Ends every row."""
    return torch.ones(env.num_envs, dtype=torch.bool)


def refuses(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Cannot be built."""
    raise KeyError("no such thing")


# ---------------------------------------------------------------- events and commands with a fault


def kicks_everybody(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    """Writes all rows, whoever is due."""
    kick(env, torch.arange(env.num_envs))


@writes("dof_armature")
def same_for_everybody(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    """Draws one number for all rows of a reset."""
    drawn = env.rng.uniform(0.1, 1.0, 1).expand(env_ids.numel(), 2).contiguous()
    env.scene["robot"].data.write_model("dof_armature", drawn, env_ids)


@writes("dof_damping", "dof_armature")
def half_the_same(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    """Draws the damping of each row, and one armature for all."""
    data = env.scene["robot"].data
    data.write_model("dof_damping", env.rng.uniform(0.0, 1.0, (env_ids.numel(), 2)), env_ids)
    same_for_everybody(env, env_ids)


def asks_in_every_step(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    """Asks the device for a number, as an event of every step."""
    env.scene["robot"].data.joint_vel.max().item()


@writes("body_mass")
def below_zero(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    """Stages masses that no body can have."""
    data = env.scene["robot"].data
    data.write_model("body_mass", -data.model_values("body_mass", env_ids), env_ids)


@writes("body_mass")
def below_zero_later(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    """Does so in resets of the second episode and later."""
    if env.step_counter:
        below_zero(env, env_ids)


@writes("body_mass")
def below_zero_without_noise(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    """Does so only where observations have no noise."""
    if not env.cfg.observations["obs"].enable_corruption:
        below_zero(env, env_ids)


@writes("body_mass")
def unharmed(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    """Stages the masses that are staged already."""
    data = env.scene["robot"].data
    data.write_model("body_mass", data.model_values("body_mass", env_ids), env_ids)


@writes("dof_damping")
def nothing_new(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    """Draws, and writes back what was there."""
    data = env.scene["robot"].data
    env.rng.uniform(0.1, 1.0, 1)
    data.write_model("dof_damping", data.model_values("dof_damping", env_ids), env_ids)


def draws_from_numpy(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    """Draws from NumPy's own generator."""
    data = env.scene["robot"].data
    drawn = torch.from_numpy(np.random.uniform(-0.1, 0.1, (env_ids.numel(), 2)).astype(np.float32))
    data.write_joint_state(drawn, drawn, env_ids)


class OwnSeed:
    """Draws from a generator of its own, whose seed is always the same."""

    def __init__(self, cfg: Any, env: ManagerBasedRlEnv) -> None:
        self.generator = torch.Generator().manual_seed(3)

    def __call__(self, env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
        data = env.scene["robot"].data
        drawn = torch.rand(env_ids.numel(), 2, generator=self.generator) * 0.1
        data.write_joint_state(drawn, drawn, env_ids)


class CarelessCfg(PlaceCfg):
    """Makes a command that redraws everybody."""

    def make(self, env: Any, name: str) -> Place:
        return Careless(self, env, name)


class Careless(Place):
    """Redraws everybody whenever anybody is due."""

    def _resample_command(self, reset_mask: torch.Tensor) -> None:
        self._command.copy_(self.ranges.draw(self._env.rng, self._env.num_envs))


class Picky:
    """Takes no interval as short as a check would like it."""

    def __init__(self, cfg: Any, env: ManagerBasedRlEnv) -> None:
        if cfg.interval_range_s[0] < 0.5:
            raise ValueError("an interval of less than 0.5 s")

    def __call__(self, env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
        kick(env, env_ids)


class AskingCfg(PlaceCfg):
    """Makes a command that measures on the host."""

    def make(self, env: Any, name: str) -> Place:
        return Asking(self, env, name)


class Asking(Place):
    """Asks the device for a number whenever it measures."""

    metric_names = ("fastest",)

    def _update_metrics(self) -> None:
        self.metric_sums += self._env.scene["robot"].data.joint_vel.abs().max().item()


class AskingEffortCfg(mdp.JointEffortActionCfg):
    """Makes an action that looks at its actions on the host."""

    def make(self, env: Any, name: str) -> AskingEffort:
        return AskingEffort(self, env, name, self.offset)


class AskingEffort(AffineJointTerm):
    """Asks the device for a number in every step."""

    def process(self, actions: torch.Tensor) -> torch.Tensor:
        largest = actions.abs().max().item()
        return super().process(actions / max(largest, 1.0))


def defective() -> ManagerBasedRlEnvCfg:
    """Returns that task with a reward that is never anything."""
    return with_terms("rewards", zero=RewardTermCfg(func=zero, weight=0.1))
