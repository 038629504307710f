"""The checks, in the order in which they run: cheap and correct first, then fast, then long."""

from __future__ import annotations

from gpu_checks.runner import Check

__all__ = ["CHECKS"]


def _check(
    name: str, function: str, what: str, seconds: float, *, required: bool = False, shares: bool = False
) -> Check:
    return Check(name, f"gpu_checks.{function}", what, seconds, required, shares)


CHECKS = (
    _check("machine", "machine:look", "what it is; the packages are this checkout's", 60, required=True),
    _check("kernels", "machine:compile_kernels", "every kernel compiles", 300),
    _check("refusals", "refusals:check_refusals", "what is not valid is refused", 90, shares=True),
    _check("parity", "correctness:check_parity", "rollouts and resets are MuJoCo's", 90, shares=True),
    _check("capture", "correctness:check_capture", "graphs do what launches do", 90, shares=True),
    _check("bridge", "bridge:check_bridge", "pinned packets, counts, bytes, copies", 90, shares=True),
    _check("syncs", "bridge:check_syncs", "a step waits for two verdicts", 90, shares=True),
    _check("overflow", "correctness:check_overflow", "too little room is reported", 90, shares=True),
    _check("conformance", "correctness:check_conformance", "the suite passes", 240, shares=True),
    _check("streams", "streams:check_streams", "reads that wait are right, others stale", 60),
    _check("quadruped speed", "speed:measure_quadruped", "1k to 32k rows", 90),
    _check("cartpole speed", "speed:measure_cartpole", "1k to 32k rows", 90),
    _check("graph speed", "speed:measure_graphs", "with and without graphs", 60),
    _check("bridge training", "training:train_bridge", "PPO over physics on the host", 60),
    _check("walk training", "training:train_walk", "PPO, the quadruped's return rises", 90),
    _check("balance training", "training:train_balance", "PPO, cart-pole reaches its bar", 120),
)
