from .algorithm import PPO_ALGORITHM
from .config import PpoCfg
from .learner import PpoLearner
from .ppo import FinalObservationPpo
from .vec_env import RslRlVecEnv

__all__ = ["PPO_ALGORITHM", "FinalObservationPpo", "PpoCfg", "PpoLearner", "RslRlVecEnv"]
