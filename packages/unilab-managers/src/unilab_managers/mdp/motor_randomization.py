"""Event terms that randomise what drives and reads joints; what `mdp.randomization` says holds here too.

How late actions arrive is no event: an action's own `delay_min_lag` and `delay_max_lag` say from which range each row
draws at its reset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from unilab_core.entity_cfg import SceneEntityCfg
from unilab_core.writes import writes
from unilab_managers.mdp._model_draws import Draws, actuators_meant, scale_whole
from unilab_managers.mdp._sampling import Distribution, Range, Sharing, check_range

if TYPE_CHECKING:
    from unilab_managers.cfg.events import EventTermCfg
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["randomize_encoder_bias", "randomize_motor_strength"]

_ROBOT = SceneEntityCfg()


@writes("actuator_gainprm", "actuator_biasprm")
class randomize_motor_strength:
    """Scales what actuators give: of a motor its effort, of a servo its stiffness and its damping alike.

    The effort of an actuator is gain x control + bias, the bias what a servo adds for position and velocity; both are
    scaled by one factor, so it gives that factor of what it would give, up to its force limits. These stay; see
    `randomize_effort_limits`. Actions are not told: the same control gives another effort, also of DC motors.
    """

    def __init__(self, cfg: EventTermCfg, env: ManagerBasedRlEnv) -> None:
        """Checks that every actuator it means is a motor or a servo.

        Raises:
            ValueError: One is neither, so that its effort is not proportional to what would be scaled.
        """
        asset_cfg: SceneEntityCfg = cfg.params.get("asset_cfg", _ROBOT)
        kinds = {actuator.name: actuator.kind for actuator in env.model_layout.actuators}
        names = actuators_meant(env, asset_cfg)
        wrong = [name for name in names if kinds[f"{asset_cfg.name}/{name}"] == "other"]
        if wrong:
            raise ValueError(f"actuators {wrong} are neither motors nor servos; name others in asset_cfg")

    def __call__(
        self,
        env: ManagerBasedRlEnv,
        env_ids: torch.Tensor,
        strength_range: Range,
        distribution: Distribution = "uniform",
        sharing: Sharing = "per_element",
        asset_cfg: SceneEntityCfg = _ROBOT,
    ) -> None:
        """Stages scaled gains and biases.

        `strength_range` is the lowest and the highest factor, `asset_cfg` names actuators; other arguments are those of
        `randomize_body_inertia`.
        """
        draws = Draws("strength_range", strength_range, "scale", distribution, sharing)
        scale_whole(env, env_ids, ("actuator_gainprm", "actuator_biasprm"), asset_cfg, draws)


class randomize_encoder_bias:
    """Makes the encoders of joints read wrong by an offset that holds until the row is reset again.

    What reads a joint by its encoder shows position + offset: `joint_pos` and `joint_pos_rel` with `biased=True`. What
    is driven by its encoder goes wrong likewise: a target t of a position action, DC motors included, drives the joint
    to t - offset. Everything else (rewards, limits, other observations) keeps to the true position.
    """

    def __init__(self, cfg: EventTermCfg, env: ManagerBasedRlEnv) -> None:
        """Finds the joints.

        Raises:
            ValueError: The mode is neither `"reset"` nor `"startup"`, or a name matches no joint.
        """
        if cfg.mode not in ("reset", "startup"):
            raise ValueError(
                f"an encoder's bias is drawn in mode 'reset' or 'startup', not in mode {cfg.mode!r}"
            )
        asset_cfg: SceneEntityCfg = cfg.params.get("asset_cfg", _ROBOT)
        entity = env.scene[asset_cfg.name]
        columns = torch.arange(len(entity.joint_names), device=env.device)
        self._joint_ids = columns[entity.joint_ids(asset_cfg)]
        self._bias = env.encoders.make_bias(asset_cfg.name)
        self._is_startup = cfg.mode == "startup"

    def __call__(
        self,
        env: ManagerBasedRlEnv,
        env_ids: torch.Tensor,
        bias_range: Range,
        asset_cfg: SceneEntityCfg = _ROBOT,
    ) -> None:
        """Draws new offsets; several terms on one joint add up.

        Args:
            env: The environment.
            env_ids: (K,) rows being reset.
            bias_range: Lowest and highest offset of each joint, m or rad.
            asset_cfg: The joints.

        Raises:
            ValueError: The range is inverted.
        """
        del asset_cfg  # the constructor has found its joints
        check_range("bias_range", bias_range)
        offsets = env.rng.uniform(*bias_range, (env_ids.numel(), self._joint_ids.numel()))
        self._bias.add(offsets, env_ids, self._joint_ids, to_baseline=self._is_startup)
