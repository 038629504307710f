"""Noise models of observations."""

from unilab_managers.noise.noise import ConstantNoiseCfg, GaussianNoiseCfg, NoiseCfg, UniformNoiseCfg

__all__ = ["ConstantNoiseCfg", "GaussianNoiseCfg", "NoiseCfg", "UniformNoiseCfg"]
