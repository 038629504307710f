"""Noise models of observations."""

from unilab_managers.noise.additive_bias import AdditiveBiasNoise, AdditiveBiasNoiseCfg
from unilab_managers.noise.model import NoiseModel, NoiseModelCfg
from unilab_managers.noise.noise import ConstantNoiseCfg, GaussianNoiseCfg, NoiseCfg, UniformNoiseCfg

__all__ = [
    "AdditiveBiasNoise",
    "AdditiveBiasNoiseCfg",
    "ConstantNoiseCfg",
    "GaussianNoiseCfg",
    "NoiseCfg",
    "NoiseModel",
    "NoiseModelCfg",
    "UniformNoiseCfg",
]
