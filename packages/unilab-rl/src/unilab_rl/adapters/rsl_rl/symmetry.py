"""Mirrored samples for rsl-rl's symmetry extension; the networks stay as they are."""

from __future__ import annotations

from typing import Any

import torch
from rsl_rl.extensions import Symmetry
from rsl_rl.models import MLPModel
from rsl_rl.storage import RolloutStorage
from tensordict import TensorDict

from unilab_core import ConfigError, import_string
from unilab_rl.adapters.rsl_rl.config import PpoCfg
from unilab_rl.contracts.env import EnvProtocol
from unilab_rl.contracts.mirror import Mirror, Reflection

__all__ = ["AugmentedSymmetry", "MirrorAugmentation", "symmetry_settings"]


class MirrorAugmentation:
    """Puts the mirror image of every sample behind the samples, as rsl-rl's `data_augmentation_func`."""

    def __init__(self, mirror: Mirror, device: torch.device) -> None:
        self._observations = {
            name: _tensors(reflection, device) for name, reflection in mirror.observations.items()
        }
        self._actions = _tensors(mirror.actions, device)

    def __call__(
        self, *, env: object, obs: TensorDict | None, actions: torch.Tensor | None
    ) -> tuple[TensorDict | None, torch.Tensor | None]:
        """Returns observations and actions of twice the rows, the originals first; `None` stays `None`.

        Args:
            env: What rsl-rl was given; unused.
            obs: Groups of (N, width) float32, batch size (N,).
            actions: (N, A) float32.
        """
        del env
        both = None
        if obs is not None:
            groups = {
                name: _with_image(obs[name], *reflection) for name, reflection in self._observations.items()
            }
            both = TensorDict(groups, batch_size=[2 * obs.batch_size[0]], device=obs.device)
        return both, None if actions is None else _with_image(actions, *self._actions)


class AugmentedSymmetry(Symmetry):  # type: ignore[misc]  # rsl-rl ships no types
    """rsl-rl's symmetry where samples and images are one batch, without its second pass through the actor.

    rsl-rl asks the actor again for the means of the very batch that it has just evaluated, also where the difference is
    only reported: a sixth of an update.
    """

    def compute_loss(
        self, actor: MLPModel, batch: RolloutStorage.Batch, original_batch_size: int
    ) -> torch.Tensor:
        """Returns the mean squared difference of the action in the mirror and the mirrored action, 0-d.

        Args:
            actor: Just evaluated on `batch`.
            batch: Samples and, behind them, their images.
            original_batch_size: How many samples there are.
        """
        means = actor.output_mean if self.use_mirror_loss else actor.output_mean.detach()
        samples, images = means.split(original_batch_size)
        _, both = self.data_augmentation_func(env=self.env, obs=None, actions=samples)
        return torch.nn.functional.mse_loss(images, both.detach()[original_batch_size:])


def symmetry_settings(cfg: PpoCfg, env: EnvProtocol) -> dict[str, Any] | None:
    """Returns rsl-rl's `symmetry_cfg` for `env`, or `None` where `cfg` names no symmetry.

    Raises:
        ConfigError: The function that `cfg.symmetry` names gives no `Mirror`, or one that doesn't fit `env`.
    """
    if cfg.symmetry is None:
        return None
    owner = f"PpoCfg.symmetry {import_string(cfg.symmetry)}"
    try:
        mirror = cfg.symmetry(env.describe())
        if not isinstance(mirror, Mirror):
            raise ConfigError(f"returned a {type(mirror).__name__}, expected a Mirror")
        mirror.check_fits(env.obs_groups_spec, env.num_actions)
    except ConfigError as error:
        raise ConfigError(f"{owner}: {error}") from error
    return {
        "data_augmentation_func": MirrorAugmentation(mirror, env.device),
        "use_data_augmentation": True,
        "use_mirror_loss": cfg.mirror_loss_coef > 0.0,
        "mirror_loss_coeff": cfg.mirror_loss_coef,
    }


def _tensors(reflection: Reflection, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    permutation = torch.tensor(reflection.permutation, dtype=torch.int64, device=device)
    return permutation, torch.tensor(reflection.signs, dtype=torch.float32, device=device)


def _with_image(rows: torch.Tensor, permutation: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    return torch.cat((rows, rows.index_select(-1, permutation) * signs))
