"""What a left-right symmetric robot's observations and actions look like in a mirror."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from unilab_core import ConfigError, nearest

__all__ = ["Mirror", "Reflection"]


@dataclass(frozen=True)
class Reflection:
    """How the columns of one tensor change places in a mirror: column `i` becomes `signs[i] * x[:, permutation[i]]`.

    Looking twice shows the original again: columns change places in pairs, and both of a pair have one sign.

    Raises:
        ConfigError: Both don't have one length, `permutation` is none, a sign is neither 1 nor -1, or looking twice
            doesn't show the original.
    """

    permutation: tuple[int, ...]
    """For each column the one that it is taken from."""
    signs: tuple[float, ...]
    """For each column 1 or -1, after it was moved."""

    def __post_init__(self) -> None:
        permutation, signs = self.permutation, self.signs
        if len(permutation) != len(signs):
            raise ConfigError(
                f"Reflection: {len(permutation)} columns in permutation and {len(signs)} signs, expected as many"
            )
        if sorted(permutation) != list(range(len(permutation))):
            raise ConfigError(
                f"Reflection: permutation is {permutation}, expected each of 0 to {len(permutation) - 1} once"
            )
        for column, (source, sign) in enumerate(zip(permutation, signs, strict=True)):
            if sign not in (1, -1):
                raise ConfigError(f"Reflection: the sign of column {column} is {sign!r}, expected 1 or -1")
            if permutation[source] != column or signs[source] != sign:
                raise ConfigError(
                    f"Reflection: column {column} comes from {sign:+g} x column {source}, and column {source} from "
                    f"{signs[source]:+g} x column {permutation[source]}; expected {sign:+g} x column {column}, so that "
                    "mirroring twice gives the original"
                )

    @classmethod
    def of_labels(cls, labels: Sequence[str], image: Callable[[str], tuple[str, float]]) -> Reflection:
        """Builds a reflection from the columns' labels.

        Args:
            labels: The label of each column, in order, as `EnvDescription` has them.
            image: For a label that of the column which takes its place in the mirror, and the sign; for example
                `"joint_pos[FL_hip]"` to `("joint_pos[FR_hip]", -1)`.

        Raises:
            ConfigError: A label occurs twice, or the image of one is no label.
        """
        columns = {label: column for column, label in enumerate(labels)}
        if len(columns) != len(labels):
            twice = next(label for column, label in enumerate(labels) if columns[label] != column)
            raise ConfigError(f"Reflection.of_labels: the label {twice!r} occurs twice")
        images = [image(label) for label in labels]
        for label, (source, _) in zip(labels, images, strict=True):
            if source not in columns:
                raise ConfigError(
                    f"Reflection.of_labels: the image of {label!r} is {source!r}, which is no label; "
                    f"{nearest(source, columns)}"
                )
        return cls(tuple(columns[source] for source, _ in images), tuple(float(sign) for _, sign in images))

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.permutation)


@dataclass(frozen=True)
class Mirror:
    """The reflections of everything that a learner stores."""

    observations: Mapping[str, Reflection]
    """By observation group, every group that the environment publishes."""
    actions: Reflection

    def check_fits(self, obs_groups_spec: Mapping[str, int], num_actions: int) -> None:
        """Checks that it fits an environment.

        Args:
            obs_groups_spec: The width of each observation group.
            num_actions: The width of an action row, A.

        Raises:
            ConfigError: A group is missing or unknown, or a width differs; names it.
        """
        for group in self.observations:
            if group not in obs_groups_spec:
                raise ConfigError(
                    f"Mirror: there is no observation group {group!r}; {nearest(group, obs_groups_spec)}"
                )
        for group, width in obs_groups_spec.items():
            if group not in self.observations:
                raise ConfigError(
                    f"Mirror: the observation group {group!r} is missing, got {sorted(self.observations)}"
                )
            own = self.observations[group].width
            if own != width:
                raise ConfigError(
                    f"Mirror: the observation group {group!r} has {own} columns in the mirror, expected {width}"
                )
        if self.actions.width != num_actions:
            raise ConfigError(
                f"Mirror: actions have {self.actions.width} columns in the mirror, expected {num_actions}"
            )
