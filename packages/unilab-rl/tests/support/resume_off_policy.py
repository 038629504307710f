"""Continues every named algorithm from FOLDER/<name>.pt for three iterations and saves FOLDER/<name>-resumed.pt."""

import sys
from pathlib import Path

import torch
from off_policy_support import ALGORITHMS, checkpoint, small
from rl_support import ScriptedEnv

from unilab_rl import save_checkpoint
from unilab_rl.checkpoint import load_checkpoint_with_replay
from unilab_rl.runtime.evaluator import learner_state


def main(folder: Path, names: list[str]) -> None:
    torch.set_num_threads(1)
    for algorithm in ALGORITHMS:
        if algorithm.name not in names:
            continue
        env = ScriptedEnv(exact=True)
        learner = algorithm.make_learner(env, small(algorithm), seed=5)
        held = load_checkpoint_with_replay(folder / f"{algorithm.name}.pt")
        assert held.env_state is not None
        learner.load_state(learner_state(held), episodes_continue=True)
        env.load_state_dict(held.env_state)
        for _ in range(3):
            learner.iterate()
        save_checkpoint(folder / f"{algorithm.name}-resumed.pt", checkpoint(learner, env))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
