from .adapters.rsl_rl.algorithm import PPO_ALGORITHM
from .adapters.rsl_rl.config import PpoCfg
from .checkpoint import Checkpoint, CheckpointError, list_checkpoints, load_checkpoint, save_checkpoint
from .contracts.algorithm import Algorithm, Iteration, Learner, LearnerCfg, LearnerState, Policy
from .contracts.env import EnvProtocol
from .contracts.mirror import Mirror, Reflection
from .registry import get_algorithm, list_algorithms, register_algorithm
from .run_config import BudgetCfg, RunConfig
from .run_folder import RunFolder, RunFolderError, create_run_folder, resolve_run
from .runtime.evaluate import Evaluation, evaluate
from .runtime.evaluator import Evaluator
from .runtime.pairing import PairedEvaluation
from .runtime.policies import RandomPolicy, ZeroPolicy
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
    "Evaluator",
    "Iteration",
    "Learner",
    "LearnerCfg",
    "LearnerState",
    "Mirror",
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
