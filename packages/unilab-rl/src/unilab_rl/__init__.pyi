from .adapters.rsl_rl.algorithm import PPO_ALGORITHM
from .adapters.rsl_rl.config import PpoCfg
from .checkpoint import Checkpoint, CheckpointError, list_checkpoints, load_checkpoint, save_checkpoint
from .contracts.algorithm import Algorithm, Iteration, Learner, LearnerCfg, LearnerState, Policy
from .contracts.env import EnvProtocol
from .registry import get_algorithm, list_algorithms, register_algorithm
from .run_config import BudgetCfg, RunConfig
from .run_folder import RunFolder, RunFolderError, create_run_folder, resolve_run
from .runtime.evaluate import Evaluation, evaluate
from .runtime.resuming import Resume
from .runtime.runner import Outcome, Progress, Runner, Watcher
from .runtime.session import TrainRequest, resume, train

__all__ = [
    "PPO_ALGORITHM",
    "Algorithm",
    "BudgetCfg",
    "Checkpoint",
    "CheckpointError",
    "EnvProtocol",
    "Evaluation",
    "Iteration",
    "Learner",
    "LearnerCfg",
    "LearnerState",
    "Outcome",
    "Policy",
    "PpoCfg",
    "Progress",
    "Resume",
    "RunConfig",
    "RunFolder",
    "RunFolderError",
    "Runner",
    "TrainRequest",
    "Watcher",
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
