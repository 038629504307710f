"""Commands: when rows are redrawn, what a partial reset leaves alone, and what a step costs."""

from __future__ import annotations

import pytest
import torch
from command_support import Asked, BareCfg, CountCfg, CountTerm, MotionCfg, asked, redrawn, same, steps
from manager_support import DT, Feed, MakeEnv, base_cfg, calls, flag, ids, zeros

from unilab_core.errors import ConfigError, ResetRejectedError, UnknownNameError
from unilab_managers import ManagerBasedRlEnv, TerminationTermCfg

NO, YES = False, True


def term(env: ManagerBasedRlEnv, name: str = "count") -> CountTerm:
    found = env.command_manager.get_term(name)
    assert isinstance(found, CountTerm)
    return found


def redraw_steps(env: ManagerBasedRlEnv, count: int, resets: dict[int, torch.Tensor]) -> list[list[int]]:
    """Returns per row at which of `count` steps it was redrawn; `resets` are done after the steps they name."""
    found: list[list[int]] = [[] for _ in range(env.num_envs)]
    for step in range(1, count + 1):
        before = term(env).values[:, 0].clone()
        env.step(zeros(env))
        for row in (term(env).values[:, 0] != before).nonzero().flatten().tolist():
            found[row].append(step)
        if step in resets:
            env.reset(resets[step])
    return found


# ---------------------------------------------------------------- timers


def test_a_reset_draws_a_command_and_a_timer_for_its_rows_only(make_env: MakeEnv) -> None:
    env = make_env(3, commands={"count": CountCfg()})
    assert term(env).steps_left.tolist() == [5, 5, 5]
    assert env.command_manager.get_command("count").tolist() == [[1.0, 0.0, 1.0]] * 3
    steps(env, 2)
    env.reset(ids(2, 0))
    assert term(env).steps_left.tolist() == [5, 3, 5]
    assert term(env).values.tolist() == [[2.0, 0.0, 2.0], [1.0, 2.0, 1.0], [2.0, 0.0, 2.0]]


def test_a_timer_starts_anew_with_the_episode_of_its_row(make_env: MakeEnv) -> None:
    env = make_env(2, commands={"count": CountCfg()})
    assert redraw_steps(env, 15, {3: ids(1)}) == [[5, 10, 15], [8, 13]]


def test_an_automatic_reset_starts_timers_as_an_explicit_one_does(make_env: MakeEnv) -> None:
    feed = Feed()
    ends = {"flag": TerminationTermCfg(func=flag, params={"index": 1})}
    env = make_env(2, feed=feed, terminations=ends, commands={"count": CountCfg()})
    steps(env, 2)
    feed.probe([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    steps(env, 1)
    assert term(env).steps_left.tolist() == [2, 5]
    assert term(env).values.tolist() == [[1.0, 3.0, 1.0], [2.0, 0.0, 2.0]]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.14, 7), (0.28, 14), (0.56, 28), (0.58, 29), (1.14, 57), (0.15, 8), (0.001, 1)],
)
def test_qa_117_the_time_between_redraws_is_a_whole_number_of_steps(
    make_env: MakeEnv, seconds: float, expected: int
) -> None:
    env = make_env(1, commands={"count": CountCfg(resampling_time_range=(seconds, seconds))})
    assert redraw_steps(env, 2 * expected, {}) == [[expected, 2 * expected]]


def test_a_range_of_times_gives_every_number_of_steps_within_it_and_no_other(make_env: MakeEnv) -> None:
    env = make_env(400, commands={"count": CountCfg(resampling_time_range=(0.04, 0.1))})
    left = term(env).steps_left.clone()
    assert left.unique().tolist() == [2, 3, 4, 5]
    steps(env, 2)
    over = left == 2
    assert torch.equal(term(env).steps_left[~over], left[~over] - 2)
    assert term(env).steps_left[over].unique().tolist() == [2, 3, 4, 5]


def test_a_timer_that_may_run_out_in_the_step_after_a_reset_is_looked_at_then(make_env: MakeEnv) -> None:
    for shortest, looked_at in ((0.02, True), (0.04, False)):
        env = make_env(2, commands={"count": CountCfg(resampling_time_range=(shortest, 0.08))})
        env.command_manager.timers_judged({"commands/count": False})
        env.reset(ids(1))
        assert term(env).due is looked_at


def test_timers_say_which_rows_the_next_step_redraws(make_env: MakeEnv) -> None:
    env = make_env(2, commands={"count": CountCfg(), "other": CountCfg(resampling_time_range=(1.0, 1.0))})
    steps(env, 1)
    env.reset(ids(1))
    steps(env, 3)
    timers = env.command_manager.timers()
    assert {key: due.tolist() for key, due in timers.items()} == {
        "commands/count": [YES, NO],
        "commands/other": [NO, NO],
    }


def test_without_a_timer_that_runs_out_no_command_is_redrawn_and_nothing_is_drawn(make_env: MakeEnv) -> None:
    wide = CountCfg(resampling_time_range=(0.1, 1.0))
    env = make_env(2, commands={"count": CountCfg(), "wide": wide})
    env.command_manager.timers_judged({"commands/count": False, "commands/wide": False})
    before = env.rng.get_state()
    calls.clear()
    steps(env, 4)
    assert redrawn("count") == []
    assert torch.equal(env.rng.get_state(), before)
    steps(env, 1)
    assert redrawn("count") == [[YES, YES]]


# ---------------------------------------------------------------- conditions


def test_a_condition_redraws_its_rows_and_starts_their_timers_anew(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(3, feed=feed, commands={"count": CountCfg(on_flag=True)})
    steps(env, 2)
    feed.probe([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    calls.clear()
    steps(env, 1)
    assert redrawn("count") == [[NO, YES, NO]]
    assert term(env).steps_left.tolist() == [2, 5, 2]
    feed.probe([[0.0, 0.0, 0.0]] * 3)
    steps(env, 2)
    assert redrawn("count")[-1] == [YES, NO, YES]
    assert term(env).steps_left.tolist() == [5, 3, 5]
    feed.probe([[0.0, 0.0, 0.0]] * 3)
    steps(env, 2)
    feed.probe([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    steps(env, 1)  # row 1 is due, row 0 asks for it
    assert redrawn("count")[-1] == [YES, YES, NO]


def test_a_condition_that_is_no_mask_of_rows_is_refused_by_name(make_env: MakeEnv) -> None:
    with pytest.raises(ConfigError, match=r"commands term 'bad': _resample_condition returned torch.float32"):
        make_env(commands={"bad": BareCfg(kind="condition")})


# ---------------------------------------------------------------- no time passes in a reset


def test_qa_035_a_partial_reset_does_not_advance_the_commands_of_other_rows(make_env: MakeEnv) -> None:
    env = make_env(2, autoreset=False, commands={"motion": MotionCfg()})
    positions = []
    for _ in range(5):
        env.step(zeros(env))
        positions.append(env.scene["robot"].data.joint_pos[0].clone())
        calls.clear()
        env.reset(ids(1))
        assert calls == [("write", [1])]
        assert torch.equal(env.scene["robot"].data.joint_pos[0], positions[-1])
    assert env.command_manager.get_command("motion").flatten().tolist() == [5.0, 0.0]
    steps(env, 3)
    assert env.command_manager.get_command("motion").flatten().tolist() == [8.0, 3.0]


def test_a_reset_keeps_all_that_other_rows_remember(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(3, feed=feed, commands={"count": CountCfg()})
    feed.probe([[1.0, 0.0, 0.0], [2.0, 0.0, 0.0], [4.0, 0.0, 0.0]])
    steps(env, 2)
    before = {name: getattr(term(env), name)[::2].clone() for name in ("steps_left", "values", "metric_sums")}
    env.reset(ids(1))
    for name, values in before.items():
        assert torch.equal(getattr(term(env), name)[::2], values)
    assert term(env).metric_sums.tolist() == [[2.0, 2.0], [0.0, 0.0], [8.0, 2.0]]


# ---------------------------------------------------------------- what it costs


def ask(env: ManagerBasedRlEnv, *, due: bool) -> Asked:
    env.command_manager.timers_judged({key: due for key in env.command_manager.timers()})
    return asked(env.command_manager.compute)


def test_a_step_in_which_nothing_is_due_only_counts_down(make_env: MakeEnv) -> None:
    env = make_env(commands={"bare": BareCfg()})
    assert ask(env, due=False).operators == ["sub_"]


@pytest.mark.parametrize("shortest", [0.02, 0.1])
def test_no_step_and_no_reset_makes_the_host_wait(make_env: MakeEnv, shortest: float) -> None:
    env = make_env(4, commands={"bare": BareCfg(resampling_time_range=(shortest, 0.1))})
    rows = ids(1, 3)
    for due in (False, True):
        assert not ask(env, due=due).waits
    assert not asked(lambda: env.command_manager.reset_resolved(rows)).waits
    assert not asked(lambda: env.command_manager.refresh(rows)).waits


# ---------------------------------------------------------------- undone with a rejected reset


def test_a_rejected_reset_puts_everything_back(make_env: MakeEnv) -> None:
    feed = Feed()
    first = CountCfg(resampling_time_range=(0.02, 0.2))
    env = make_env(3, feed=feed, commands={"count": first, "fails": CountCfg()})
    feed.probe([[1.0, 2.0, 0.0]] * 3)
    steps(env, 3)
    term(env, "fails").fails = True
    before = env.state_dict()
    with pytest.raises(ResetRejectedError, match="commands term 'fails': KeyError"):
        env.reset(ids(0, 2))
    assert same(env.state_dict(), before)
    assert env.command_manager.pop_log() == {}
    term(env, "fails").fails = False
    _, info = env.reset(ids(0, 2))
    assert [float(info["episode"][f"Metrics/count/shown/{part}"]) for part in ("sum", "count")] == [2.0, 2.0]


def test_a_state_continues_commands_and_timers(make_env: MakeEnv) -> None:
    commands = {"count": CountCfg(resampling_time_range=(0.02, 0.2))}
    env, other = make_env(3, commands=commands, seed=1), make_env(3, commands=commands, seed=2)
    steps(env, 4)
    state = env.state_dict()
    other.load_state_dict(state)
    assert same(other.state_dict(), state)
    steps(env, 7)
    steps(other, 7)
    assert same(other.state_dict(), env.state_dict())
    assert {"commands.count.steps_left", "commands.count.values", "commands.count.metric_sums"} <= set(
        state["values"]
    )


# ---------------------------------------------------------------- names and refusals


def test_labels_name_the_columns_of_every_command(make_env: MakeEnv) -> None:
    env = make_env(commands={"count": CountCfg(), "bare": BareCfg()})
    assert env.command_manager.active_terms == ("count", "bare")
    assert env.command_manager.labels() == {
        "count": ("redraws", "steps", "refreshes"),
        "bare": ("[0]", "[1]"),
    }


def test_an_unknown_command_is_answered_with_the_nearest(make_env: MakeEnv) -> None:
    env = make_env(commands={"count": CountCfg()})
    for ask_for in (env.command_manager.get_term, env.command_manager.get_command):
        with pytest.raises(UnknownNameError, match="commands: unknown term 'cuont'; did you mean 'count'"):
            ask_for("cuont")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("flat", r"command returned torch.float32 \(3,\), expected torch.float32 \(3, dim\)"),
        ("double", r"command returned torch.float64"),
        ("rows", r"command returned torch.float32 \(4, 2\)"),
        ("labels", r"labels \('only',\) are 1, expected one for each of the 2 columns"),
    ],
)
def test_a_command_of_another_form_is_refused_by_name(make_env: MakeEnv, kind: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"commands term 'bad': {message}"):
        make_env(commands={"bad": BareCfg(kind=kind)})


def test_an_unknown_entity_is_answered_with_the_nearest(make_env: MakeEnv) -> None:
    with pytest.raises(ConfigError, match="commands term 'count': .*'robbot'.*did you mean 'robot'"):
        make_env(commands={"count": CountCfg(entity="robbot")})


@pytest.mark.parametrize("times", [(0.2, 0.1), (0.0, 1.0), (-1.0, 1.0)])
def test_times_between_redraws_are_positive_and_in_order(times: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match="resampling_time_range: .*expected 0 < shortest <= longest"):
        CountCfg(resampling_time_range=times)


def test_a_config_that_makes_no_term_says_so(make_env: MakeEnv) -> None:
    from unilab_managers.managers.command_manager import CommandTermCfg

    with pytest.raises(ConfigError, match=r"commands term 'none': .*does not implement make\(\)"):
        make_env(commands={"none": CommandTermCfg(resampling_time_range=(1.0, 1.0))})


def test_rows_are_selected_as_by_every_manager(make_env: MakeEnv) -> None:
    env = make_env(4, commands={"count": CountCfg()})
    for selector, expected in (
        (None, [1, 1, 1, 1]),
        (slice(None, None, 2), [1, 0, 1, 0]),
        (ids(3, 1), [0, 1, 0, 1]),
        (ids(), [0, 0, 0, 0]),
    ):
        for reset in (env.command_manager.reset, term(env).reset):
            before = term(env).values[:, 0].clone()
            reset(selector)
            assert (term(env).values[:, 0] - before).tolist() == expected
    mask = torch.tensor([True, False, True, False])
    for reset, owner in (
        (env.command_manager.reset, "commands.reset"),
        (term(env).reset, "commands term 'count': reset"),
    ):
        with pytest.raises(TypeError, match=f"{owner}: env_ids is a bool mask"):
            reset(mask)


def test_the_config_is_as_it_was_after_a_run(make_env: MakeEnv) -> None:
    commands = {"count": CountCfg(on_flag=True, metrics_start_s=DT)}
    env = make_env(commands=commands)
    steps(env, 6)
    env.reset(ids(0))
    assert env.cfg == base_cfg(commands=commands)
