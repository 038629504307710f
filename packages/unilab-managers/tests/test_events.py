"""Reset events: who is called when, with which rows, and what an event must not do."""

from typing import Any

import pytest
import torch
from manager_support import MakeEnv, calls, group, ids, noted_event, zeros

from unilab_managers import EventTermCfg, ManagerBasedRlEnv, ObservationTermCfg, mdp
from unilab_managers.managers import EventManager

Events = dict[str, EventTermCfg]


class PlaceOnce:
    """A class term: counts, row by row, how often it was called; forgets a row when it is reset."""

    def __init__(self, cfg: EventTermCfg, env: ManagerBasedRlEnv) -> None:
        self.counts = torch.zeros(env.num_envs, dtype=torch.int64)

    def __call__(self, env: ManagerBasedRlEnv, env_ids: torch.Tensor, step: int) -> None:
        self.counts[env_ids] += step
        calls.append(("call", self.counts.tolist()))

    def reset(self, env_ids: torch.Tensor) -> None:
        self.counts[env_ids] = 100
        calls.append(("reset", env_ids.tolist()))


def write_row_zero(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    row = torch.zeros(1, dtype=torch.int64)
    env.scene["robot"].data.write_joint_state(torch.ones(1, 2), torch.ones(1, 2), row)


def put(env: ManagerBasedRlEnv, env_ids: torch.Tensor, value: float) -> None:
    """Adds to the staged position of the rows."""
    data = env.scene["robot"].data
    data.write_joint_state(data.joint_pos[env_ids] + value, data.joint_vel[env_ids], env_ids)


def resets_again(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    if env.step_counter:
        env.reset(env_ids)


def event(**settings: Any) -> EventTermCfg:
    return EventTermCfg(func=noted_event, mode="reset", **settings)


def rows_of(tag: str = "event") -> list[list[int]]:
    return [call[3] for call in calls if call[0] == tag]


def manager(make_env: MakeEnv, num_envs: int = 3, **events: EventTermCfg) -> EventManager:
    env = make_env(num_envs, events=events, reset=False)
    calls.clear()
    return env.event_manager


def test_terms_get_one_dimensional_int64_ids(make_env: MakeEnv) -> None:
    events = manager(make_env, e=event())
    events.apply(mode="reset", env_ids=torch.tensor([2, 0], dtype=torch.int32), global_env_step_count=0)
    assert calls == [("event", torch.int64, 1, [2, 0])]


@pytest.mark.parametrize(
    ("selector", "rows"), [(None, [0, 1, 2]), (slice(1, None), [1, 2]), (slice(None), [0, 1, 2])]
)
def test_none_and_slices_select_rows(make_env: MakeEnv, selector: Any, rows: list[int]) -> None:
    events = manager(make_env, e=event())
    events.apply(mode="reset", env_ids=selector, global_env_step_count=0)
    assert calls == [("event", torch.int64, 1, rows)]


def test_terms_run_in_the_order_of_declaration(make_env: MakeEnv) -> None:
    env = make_env(events={tag: event(params={"tag": tag}) for tag in ("z", "a", "m")})
    calls.clear()
    env.reset(ids(2, 0))
    assert calls == [(tag, torch.int64, 1, [0, 2]) for tag in ("z", "a", "m")]
    assert env.event_manager.active_terms == ("z", "a", "m")


def test_a_later_event_sees_what_an_earlier_one_staged(make_env: MakeEnv) -> None:
    events = {
        "one": EventTermCfg(func=put, mode="reset", params={"value": 0.25}),
        "two": EventTermCfg(func=put, mode="reset", params={"value": 0.5}),
    }
    env = make_env(events=events)
    for _ in range(2):
        env.reset()
        assert env.scene["robot"].data.joint_pos.tolist() == [[0.75, 0.75]] * 3


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            {"mode": "rest", "global_env_step_count": 0},
            ValueError,
            "unknown mode 'rest'; did you mean 'reset'",
        ),
        ({"mode": "setup", "global_env_step_count": 0}, ValueError, "unknown mode 'setup'"),
        ({"mode": "reset"}, ValueError, "needs global_env_step_count"),
        (
            {"mode": "reset", "global_env_step_count": 0, "env_ids": torch.ones(3).bool()},
            TypeError,
            "nonzero",
        ),
        (
            {"mode": "reset", "global_env_step_count": 0, "env_ids": [0]},
            TypeError,
            "events.apply: env_ids is a list",
        ),
        ({"mode": "reset", "global_env_step_count": 0, "env_ids": torch.zeros(1)}, TypeError, "integer"),
        ({"mode": "reset", "global_env_step_count": 0, "env_ids": ids(3)}, ValueError, "holds 3"),
        ({"mode": "reset", "global_env_step_count": 0, "env_ids": ids(1, 1)}, ValueError, "more than once"),
    ],
)
def test_a_wrong_call_is_refused_and_runs_nothing(
    make_env: MakeEnv, call: dict[str, Any], error: type[Exception], message: str
) -> None:
    events = manager(make_env, e=event())
    with pytest.raises(error, match=message):
        events.apply(**call)
    assert calls == []


def test_the_names_of_earlier_versions_do_not_exist(make_env: MakeEnv) -> None:
    events = manager(make_env, e=event())
    assert not hasattr(events, "dispatch_reset")
    with pytest.raises(TypeError, match="reset_mask"):
        events.apply(mode="reset", reset_mask=torch.ones(3).bool(), global_env_step_count=0)  # type: ignore[call-arg]


def test_qa_031_the_gap_between_resets_is_counted_from_the_last_trigger(make_env: MakeEnv) -> None:
    events = manager(make_env, 1, e=event(min_step_count_between_reset=10))
    fired = []
    for step in (0, 5, 12, 21, 22):
        calls.clear()
        events.apply(mode="reset", env_ids=None if step % 2 else ids(0), global_env_step_count=step)
        if calls:
            fired.append(step)
    assert fired == [0, 12, 22]


def test_qa_031_the_gap_is_counted_row_by_row(make_env: MakeEnv) -> None:
    events = manager(make_env, 2, e=event(min_step_count_between_reset=10))
    for step, rows in (
        (0, ids(0)),
        (5, ids(0, 1)),
        (12, None),
        (15, ids(1, 0)),
        (16, ids(1)),
        (22, slice(None)),
    ):
        events.apply(mode="reset", env_ids=rows, global_env_step_count=step)
    # step 0: row 0; 5: row 1 for the first time; 12: row 0 (12 - 0); 15: row 1 (15 - 5); 16: none; 22: row 0.
    assert rows_of() == [[0], [1], [0], [1], [0]]


def test_qa_031_a_skipped_reset_does_not_move_the_mark_of_other_terms_either(make_env: MakeEnv) -> None:
    gaps = {"rare": event(min_step_count_between_reset=4, params={"tag": "rare"}), "always": event()}
    events = manager(make_env, 1, **gaps)
    for step in range(6):
        events.apply(mode="reset", env_ids=None, global_env_step_count=step)
    assert len(rows_of("rare")) == 2  # at 0 and 4
    assert len(rows_of()) == 6


def test_qa_031_the_first_reset_of_an_environment_triggers(make_env: MakeEnv) -> None:
    env = make_env(2, events={"e": event(min_step_count_between_reset=10)}, reset=False)
    calls.clear()
    env.reset()
    assert rows_of() == [[0, 1]]
    for _ in range(10):
        env.step(zeros(env))
        env.reset(ids(1))
    assert rows_of() == [[0, 1], [1]]  # at environment steps 0 and 10


def test_qa_031_a_counter_that_a_training_state_sets_back_holds_no_trigger_up(make_env: MakeEnv) -> None:
    env = make_env(1, events={"e": event(min_step_count_between_reset=10)}, reset=False)
    env.import_training_state({"version": 1, "step_counter": 1000})
    env.reset()
    env.import_training_state({"version": 1, "step_counter": 3})
    calls.clear()
    env.reset()
    env.reset()
    assert rows_of() == [[0]]  # at step 3; the next one not before step 13


def test_a_class_term_is_called_while_staging_and_reset_after_the_commit(make_env: MakeEnv) -> None:
    env = make_env(events={"place": EventTermCfg(func=PlaceOnce, mode="reset", params={"step": 1})})
    calls.clear()
    env.reset(ids(1))
    assert calls == [("call", [100, 101, 100]), ("reset", [1])]


def test_an_event_that_writes_outside_its_rows_is_refused(make_env: MakeEnv) -> None:
    env = make_env(events={"greedy": EventTermCfg(func=write_row_zero, mode="reset")})
    env.reset(ids(0, 2))
    before = env.scene["robot"].data.joint_pos.clone()
    with pytest.raises(ValueError, match="wrote rows that are not being reset"):
        env.reset(ids(1))
    assert torch.equal(env.scene["robot"].data.joint_pos, before)


def test_an_event_must_not_reset(make_env: MakeEnv) -> None:
    env = make_env(events={"loop": EventTermCfg(func=resets_again, mode="reset")})
    env.step(zeros(env))
    with pytest.raises(RuntimeError, match="a reset inside a reset"):
        env.reset(ids(1))


def test_qa_072_an_empty_reset_calls_no_event(make_env: MakeEnv) -> None:
    env = make_env(events={"e": event(), "rare": event(min_step_count_between_reset=3)})
    calls.clear()
    draws = env.rng.get_state()
    _, info = env.reset(ids())
    env.event_manager.apply(mode="reset", env_ids=ids(), global_env_step_count=5)
    assert calls == []
    assert "episode" not in info
    assert torch.equal(env.rng.get_state(), draws)


def test_a_step_in_which_no_row_ends_calls_no_event_and_draws_nothing(make_env: MakeEnv) -> None:
    offsets = {"position_range": (-1.0, 1.0), "velocity_range": (-1.0, 1.0)}
    env = make_env(
        events={
            "e": event(),
            "place": EventTermCfg(func=mdp.reset_joints_by_offset, mode="reset", params=offsets),
        },
        observations={"obs": group(pos=ObservationTermCfg(func=mdp.joint_pos))},
    )
    calls.clear()
    draws = env.rng.get_state()
    env.step(zeros(env))
    assert calls == []
    assert torch.equal(env.rng.get_state(), draws)
