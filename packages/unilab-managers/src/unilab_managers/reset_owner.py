"""The one object of a task, if any, that restores a whole state instead of leaving it to events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from unilab_core.errors import ConfigError
from unilab_core.reset_owner import ResetOwner
from unisim.config import Cfg

if TYPE_CHECKING:
    from unilab_core.env import TorchEnv

__all__ = ["ResetOwnerCfg", "find_owner"]


class ResetOwnerCfg(Cfg):
    """Base of the configs of a reset owner; each makes its own."""

    def make(self, env: TorchEnv) -> ResetOwner:
        """Returns the owner for `env`.

        Its `reset_transaction(env_ids)` stages rows after the reset events, its `reset_committed(env_ids)` runs once
        they hold their new state. It is part of the environment's state as a class term is.

        Raises:
            ConfigError: A name or setting does not fit the model.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement make()")


def find_owner(own: ResetOwner | None, terms: Mapping[str, object]) -> ResetOwner | None:
    """Returns the one owner among the config's own and the class terms that are one.

    Args:
        own: What `reset_owner` of the config made.
        terms: Label of each class term to its object.

    Raises:
        ConfigError: There are several; names them.
    """
    owners = {label: term for label, term in terms.items() if isinstance(term, ResetOwner)}
    if own is not None:
        owners["reset_owner"] = own
    if len(owners) > 1:
        raise ConfigError(
            f"{', '.join(owners)} each own the reset (they have reset_transaction and reset_committed); "
            "expected at most one: a reset has one author"
        )
    return next(iter(owners.values()), None)
