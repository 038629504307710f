from .adapters.rsl_rl.algorithm import PPO_ALGORITHM
from .adapters.rsl_rl.config import PpoCfg
from .algorithms.config import OffPolicyCfg
from .algorithms.fast_sac import FastSacCfg
from .algorithms.fast_td3 import FastTd3Cfg
from .algorithms.flash_sac import FlashSacCfg
from .algorithms.sac import SacCfg
from .algorithms.td3 import Td3Cfg
from .checkpoint import Checkpoint, CheckpointError, list_checkpoints, load_checkpoint, save_checkpoint
from .contracts.algorithm import Algorithm, Iteration, Learner, LearnerCfg, LearnerState, Policy
from .contracts.env import EnvProtocol
from .contracts.mirror import Mirror, Reflection
from .registry import get_algorithm, list_algorithms, register_algorithm
from .run_config import BudgetCfg, RunConfig
from .run_folder import RunFolder, RunFolderError, create_run_folder, resolve_run
from .runtime.evaluate import Evaluation, evaluate
from .runtime.evaluator import Evaluator
from .runtime.off_policy_algorithm import FAST_SAC, FAST_TD3, FLASH_SAC, SAC, TD3, OffPolicyAlgorithm
from .runtime.pairing import PairedEvaluation
from .runtime.policies import RandomPolicy, ZeroPolicy
from .runtime.resuming import Resume
from .runtime.runner import Outcome, Progress, Runner, Watcher
from .runtime.session import TrainRequest, resume, train
from .runtime.spawned import CollectorError

__all__ = [
    "FAST_SAC",
    "FAST_TD3",
    "FLASH_SAC",
    "PPO_ALGORITHM",
    "SAC",
    "TD3",
    "Algorithm",
    "BudgetCfg",
    "Checkpoint",
    "CheckpointError",
    "CollectorError",
    "EnvProtocol",
    "Evaluation",
    "Evaluator",
    "FastSacCfg",
    "FastTd3Cfg",
    "FlashSacCfg",
    "Iteration",
    "Learner",
    "LearnerCfg",
    "LearnerState",
    "Mirror",
    "OffPolicyAlgorithm",
    "OffPolicyCfg",
    "Outcome",
    "PairedEvaluation",
    "Policy",
    "PpoCfg",
    "Progress",
    "RandomPolicy",
    "Reflection",
    "Resume",
    "RunConfig",
    "RunFolder",
    "RunFolderError",
    "Runner",
    "SacCfg",
    "Td3Cfg",
    "TrainRequest",
    "Watcher",
    "ZeroPolicy",
    "create_run_folder",
    "evaluate",
    "get_algorithm",
    "list_algorithms",
    "list_checkpoints",
    "load_checkpoint",
    "register_algorithm",
    "resolve_run",
    "resume",
    "save_checkpoint",
    "train",
]
