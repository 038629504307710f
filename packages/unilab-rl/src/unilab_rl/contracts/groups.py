"""Which observation groups networks read."""

from __future__ import annotations

from collections.abc import Mapping

from unilab_core import ConfigError

__all__ = ["ACTOR_GROUP", "network_groups"]

ACTOR_GROUP = "obs"
"""The group that every policy reads."""

_CRITIC_GROUP = "critic"


def network_groups(owner: str, obs_groups_spec: Mapping[str, int]) -> tuple[str, str]:
    """Returns the groups that actor and critic read: `"obs"`, and `"critic"` where it is published, else `"obs"`.

    Groups are found by name, so the order in which an environment publishes them changes nothing.

    Args:
        owner: Begins the message.
        obs_groups_spec: Width of each observation group that the environment publishes.

    Raises:
        ConfigError: There is no group `"obs"`, or one of the two has no columns.
    """
    published = ", ".join(f"{name!r} with {width} columns" for name, width in sorted(obs_groups_spec.items()))
    if ACTOR_GROUP not in obs_groups_spec:
        raise ConfigError(
            f"{owner}: the environment publishes {sorted(obs_groups_spec)}, expected a group {ACTOR_GROUP!r}"
        )
    critic = _CRITIC_GROUP if _CRITIC_GROUP in obs_groups_spec else ACTOR_GROUP
    for name in (ACTOR_GROUP, critic):
        if obs_groups_spec[name] < 1:
            raise ConfigError(
                f"{owner}: the environment publishes {published}; the group {name!r} needs at least 1: add a term to "
                "it, or leave it out"
            )
    return ACTOR_GROUP, critic
