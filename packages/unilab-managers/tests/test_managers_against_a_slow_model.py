"""All managers at once against `slow_model.py`, over random steps, partial resets and automatic resets on a fake."""

import random
from typing import Any

import pytest
import torch
from manager_support import Feed, column, fake_env, ids, probe, zeros
from slow_model import (
    CLIP,
    COMMAND_STEPS,
    DT,
    FIXED_LAG,
    FLOOR,
    GLOBAL_STEPS,
    LAGS,
    LIMIT,
    METRICS_START,
    MIN_STEPS_BETWEEN_RESETS,
    NOISE,
    PERIOD,
    RESAMPLED_ON_RESET,
    SCALE,
    STAGES,
    TIMERS,
    WEIGHTS,
    Row,
)

from unilab_managers import (
    CommandTerm,
    CommandTermCfg,
    ConstantNoiseCfg,
    CurriculumTermCfg,
    EventTermCfg,
    ManagerBasedRlEnv,
    MetricsTermCfg,
    ObservationGroupCfg,
    ObservationTermCfg,
    RewardTermCfg,
    TerminationTermCfg,
    mdp,
)
from unilab_managers.mdp.curriculum import reward_weight
from unisim import SimCfg

NUM_ENVS = 5
OPERATIONS = 500
called: list[tuple[str, list[int]]] = []


def note(env: ManagerBasedRlEnv, env_ids: torch.Tensor, name: str) -> None:
    assert env_ids.dtype == torch.int64
    called.append((name, env_ids.tolist()))


class Counting(CommandTerm):
    """Counts redraws in its first column, and steps of the episode in its second."""

    metric_names = ("error",)

    def __init__(self, cfg: CommandTermCfg, env: Any, name: str) -> None:
        super().__init__(cfg, env, name)
        self._values = torch.zeros(env.num_envs, 2)

    @property
    def command(self) -> torch.Tensor:
        return self._values

    def _resample_command(self, reset_mask: torch.Tensor) -> None:
        self._values[:, 0] += reset_mask.float()

    def _update_command(self, dt: float, env_ids: torch.Tensor | None) -> None:
        if env_ids is None:
            self._values[:, 1] += dt / DT
        else:
            self._values[env_ids, 1] = dt

    def _update_metrics(self) -> None:
        self.metric_sums[:, 0] += self._values[:, 0]

    def _resample_condition(self) -> torch.Tensor:
        return self._env.scene.sensor("probe")[:, 1] > 1.75


class CountingCfg(CommandTermCfg):
    def make(self, env: Any, name: str) -> Counting:
        return Counting(self, env, name)


def count_command(env: ManagerBasedRlEnv) -> torch.Tensor:
    return env.command_manager.get_command("count")


def level(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> torch.Tensor:
    """Up by one where the first reward of the finished episode was positive, down otherwise."""
    gained = env.reward_manager.episode_sums()["plus"][env_ids] > 0
    LEVELS[env_ids] = (LEVELS[env_ids] + torch.where(gained, 1, -1)).clamp(min=0)
    return LEVELS.float().mean()


LEVELS = torch.zeros(NUM_ENVS, dtype=torch.int64)


def make(feed: Feed, seed: int) -> ManagerBasedRlEnv:
    s = DT  # seconds per step
    stages = {
        name: [{"step": step, "weight": w} for step, target, w in STAGES if target == name]
        for name in ("minus", "off")
    }
    observations = {
        "obs": ObservationGroupCfg(
            terms={
                "noisy": _noisy(),
                "late": _noisy(delay_min_lag=FIXED_LAG, delay_max_lag=FIXED_LAG, history_length=3),
                "wander": ObservationTermCfg(
                    func=probe,
                    delay_min_lag=LAGS[0],
                    delay_max_lag=LAGS[1],
                    delay_update_period=PERIOD,
                    delay_per_env_phase=False,
                    history_length=2,
                ),
            }
        ),
        "critic": ObservationGroupCfg(
            terms={
                "frame_a": ObservationTermCfg(func=probe),
                "frame_b": ObservationTermCfg(func=count_command, history_length=7),
            },
            history_length=2,
            flatten_history_dim=False,
        ),
    }
    events = {
        "begin": EventTermCfg(
            func=note,
            mode="reset",
            params={"name": "begin"},
            min_step_count_between_reset=MIN_STEPS_BETWEEN_RESETS,
        ),
        "push": EventTermCfg(
            func=note, mode="interval", params={"name": "push"}, interval_range_s=_seconds(TIMERS["push"])
        ),
        "all": EventTermCfg(
            func=note,
            mode="interval",
            params={"name": "all"},
            interval_range_s=(GLOBAL_STEPS * s, GLOBAL_STEPS * s),
            is_global_time=True,
        ),
        "drift": EventTermCfg(
            func=note,
            mode="interval",
            params={"name": "drift"},
            interval_range_s=_seconds(TIMERS["drift"]),
            resample_on_reset=False,
        ),
        "tick": EventTermCfg(func=note, mode="step", params={"name": "tick"}),
    }
    return fake_env(
        NUM_ENVS,
        feed=feed,
        seed=seed,
        reset=False,
        sim=SimCfg(timestep=DT),
        episode_length_s=LIMIT * DT,
        reward_floor=FLOOR,
        observations=observations,
        events=events,
        commands={
            "count": CountingCfg(
                resampling_time_range=_seconds(COMMAND_STEPS), metrics_start_s=METRICS_START * DT
            )
        },
        curriculum={
            **{
                f"{name}_weight": CurriculumTermCfg(
                    func=reward_weight, mode="step", params={"reward_name": name, "stages": of_name}
                )
                for name, of_name in stages.items()
            },
            "level": CurriculumTermCfg(func=level, mode="episode"),
        },
        metrics={
            kind: MetricsTermCfg(func=column, params={"index": 0}, reduce=kind)  # type: ignore[arg-type]
            for kind in ("mean", "sum", "last", "max", "min")
        },
        rewards={
            name: RewardTermCfg(func=column, weight=weight, params={"index": index})
            for name, (index, weight) in WEIGHTS.items()
        },
        terminations={
            "fell": TerminationTermCfg(func=high, params={"index": 0}),
            "cut": TerminationTermCfg(func=high, params={"index": 2}, time_out=True),
            "time": TerminationTermCfg(func=mdp.time_out),
        },
    )


def high(env: ManagerBasedRlEnv, index: int) -> torch.Tensor:
    return env.scene.sensor("probe")[:, index] > 1.75


def _noisy(**options: Any) -> ObservationTermCfg:
    return ObservationTermCfg(
        func=probe, noise=ConstantNoiseCfg(bias=NOISE), clip=CLIP, scale=SCALE, **options
    )


def _seconds(steps: tuple[int, int]) -> tuple[float, float]:
    return steps[0] * DT, steps[1] * DT


class Comparison:
    """An environment and the model of it, moved together."""

    def __init__(self, seed: int) -> None:
        self.feed = Feed()
        self.env = make(self.feed, seed)
        LEVELS.zero_()  # the terms were tried before the first reset, and a global is nobody's state
        called.clear()
        self.rows = [Row() for _ in range(NUM_ENVS)]
        self.weights = {name: weight for name, (_, weight) in WEIGHTS.items()}
        self.all_left = GLOBAL_STEPS
        for i, row in enumerate(self.rows):
            for name in TIMERS:
                row.timers[name] = self._drawn(name, i)
        self.reset(list(range(NUM_ENVS)))

    # ------------------------------------------------------------------ what was drawn

    def _drawn(self, name: str, i: int) -> int:
        left = int(self.env.event_manager.steps_left(name)[i])
        assert TIMERS[name][0] <= left <= TIMERS[name][1]
        return left

    def _drawn_command(self, i: int) -> int:
        left = int(self.env.command_manager.get_term("count").steps_left[i])
        assert COMMAND_STEPS[0] <= left <= COMMAND_STEPS[1]
        return left

    def _lag(self, i: int) -> int:
        delay = self.env.observation_manager._groups["obs"].pipelines[2]._delay
        assert delay is not None
        assert LAGS[0] <= int(delay.lags.values[i]) <= LAGS[1]
        return int(delay.lags.values[i])

    # ------------------------------------------------------------------ operations

    def step(self, values: list[list[float]]) -> None:
        env, rows = self.env, self.rows
        self.feed.probe(values)
        state = env.step(zeros(env))
        for step, name, weight in STAGES:
            if env.step_counter == step:
                self.weights[name] = weight
        rewards = [row.judge(v, self.weights) for row, v in zip(rows, values, strict=True)]
        assert state.reward.tolist() == rewards
        assert state.terminated.tolist() == [row.cause["fell"] for row in rows]
        assert state.truncated.tolist() == [row.cause["cut"] or row.cause["time"] for row in rows]
        done = [i for i, row in enumerate(rows) if row.done]
        self._events(done)
        for i, row in enumerate(rows):
            if row.step_command():
                row.command_steps = 0 if i in done else self._drawn_command(i)
            row.measured.append(row.seen[0])
            row.lag_age += 1
            if row.lag_age % PERIOD == 0 and i not in done:
                row.lag = self._lag(i)
        self._finish(done, state)
        self._compare()

    def _events(self, done: list[int]) -> None:
        """Step events, then interval events in the order of declaration."""
        expected = [("tick", list(range(NUM_ENVS)))]
        for name in ("push", "all", "drift"):
            if name == "all":
                self.all_left -= 1
                due = list(range(NUM_ENVS)) if self.all_left == 0 else []
                self.all_left = self.all_left or GLOBAL_STEPS
            else:
                due = [i for i, row in enumerate(self.rows) if row.fired(name)]
                for i in due:
                    if not (i in done and RESAMPLED_ON_RESET[name]):
                        self.rows[i].timers[name] = self._drawn(name, i)
            if due:
                expected.append((name, due))
        self.expected = expected

    def _finish(self, done: list[int], state: Any) -> None:
        """The final observation, then the reset of the rows that are done."""
        for i, row in enumerate(self.rows):
            if i in done and row.lag_age % PERIOD == 0:
                row.lag = self._unseen_lag(i, row, state)
            row.push_observations()
        if not done:
            assert state.final_observation is None
            assert "episode" not in state.info
            assert called == self.expected
            called.clear()
            return
        for group, final in state.final_observation.items():
            for i in done:
                assert final[i].tolist() == self.rows[i].observations()[group]
        self._reset_model(done, state.info["episode"], self.expected)

    def _unseen_lag(self, i: int, row: Row, state: Any) -> int:
        """A lag that was drawn and replaced within one step shows in the final observation alone."""
        newest = state.final_observation["obs"][i].tolist()[-3:]
        fits = [
            lag
            for lag in range(LAGS[0], LAGS[1] + 1)
            if [*row.terms["wander"].measured, row.seen][max(0, len(row.terms["wander"].measured) - lag)]
            == newest
        ]
        assert fits
        return fits[0]

    def reset(self, chosen: list[int]) -> None:
        observations, info = self.env.reset(ids(*chosen))
        if chosen:
            self._reset_model(chosen, info["episode"], [])
        else:
            assert "episode" not in info
        for group, rows in observations.items():
            assert rows.tolist() == [self.rows[i].observations()[group] for i in chosen]
        self._compare()

    def _reset_model(self, chosen: list[int], log: Any, expected: list[tuple[str, list[int]]]) -> None:
        """Episodes end in ascending order of rows, whatever the order that was asked for."""
        ascending = sorted(chosen)
        for i in ascending:
            gained = self.rows[i].rewards["plus"] > 0
            self.rows[i].level = max(0, self.rows[i].level + (1 if gained else -1))
        admitted = [i for i in ascending if self.rows[i].may_begin(self.env.step_counter)]
        if admitted:
            expected = [*expected, ("begin", admitted)]
        assert called == expected
        called.clear()
        self._compare_log(log, [self.rows[i].end(self.weights) for i in ascending])
        for i in ascending:
            row = self.rows[i]
            for name, resampled in RESAMPLED_ON_RESET.items():
                if resampled:
                    row.timers[name] = self._drawn(name, i)
            row.command_steps = self._drawn_command(i)
            row.lag, row.lag_age = self._lag(i), 0
            row.begin_observations()

    # ------------------------------------------------------------------ comparison

    def _compare(self) -> None:
        env, rows = self.env, self.rows
        shown = env.observations()
        for group, values in shown.items():
            assert values.tolist() == [row.observations()[group] for row in rows]
        assert env.episode_length.tolist() == [row.length for row in rows]
        for name in TIMERS:
            assert env.event_manager.steps_left(name).tolist() == [row.timers[name] for row in rows]
        assert env.event_manager.steps_left("all").tolist() == [self.all_left] * NUM_ENVS
        command = env.command_manager.get_term("count")
        assert command.steps_left.tolist() == [row.command_steps for row in rows]
        assert command.command.tolist() == [[float(row.command), float(row.ticks)] for row in rows]
        for name, sums in env.reward_manager.episode_sums().items():
            assert sums.tolist() == [row.rewards[name] for row in rows]
            assert env.reward_manager.get_weight(name) == self.weights[name]
        assert LEVELS.tolist() == [row.level for row in rows]

    def _compare_log(self, log: dict[str, torch.Tensor], ended: list[dict[str, float]]) -> None:
        for key in {key.rpartition("/")[0] for key in log} - {"return"}:
            entries = [entry[key] for entry in ended if key in entry]
            assert int(log[f"{key}/count"]) == len(entries), key
            assert float(log[f"{key}/sum"]) == pytest.approx(sum(entries), rel=1e-5, abs=1e-6), key


@pytest.mark.parametrize("seed", range(4))
def test_managers_follow_the_model_over_500_operations(seed: int) -> None:
    dice = random.Random(seed)
    comparison = Comparison(seed)
    with comparison.env as env:
        for _ in range(OPERATIONS):
            if dice.random() < 0.25:
                comparison.reset(dice.sample(range(NUM_ENVS), dice.randrange(NUM_ENVS + 1)))
            else:
                comparison.step([[dice.randint(-16, 15) / 8 for _ in range(3)] for _ in range(NUM_ENVS)])
        assert env.step_counter > STAGES[-1][0]
        assert max(row.level for row in comparison.rows) > 0
