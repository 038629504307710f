"""Which fields of an event's config fit together; every one of them changes something."""

from typing import Any

import pytest
import torch
from event_support import fired, interval, run, steps_of
from manager_support import MakeEnv, WithoutCall, calls, ids, noted_event

from unilab_core import ConfigError
from unilab_managers import EventTermCfg, ManagerBasedRlEnv, ManagerBasedRlEnvCfg


class OldForm:
    """A reset event of version 1.4: the event sits in a two-argument `reset`."""

    def __init__(self, cfg: EventTermCfg, env: ManagerBasedRlEnv) -> None:
        pass

    def reset(self, env: ManagerBasedRlEnv, reset_mask: torch.Tensor, value: float = 0.0) -> None:
        pass


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "interval"}, r"mode 'interval' needs interval_range_s, \(shortest, longest\) in s"),
        (
            {"mode": "interval", "interval_range_s": (0.2, 0.1)},
            r"is \(0.2, 0.1\), expected 0 < shortest <= longest",
        ),
        ({"mode": "interval", "interval_range_s": (0.0, 0.1)}, "expected 0 < shortest"),
        ({"mode": "interval", "interval_range_s": (-0.1, 0.1)}, "expected 0 < shortest"),
        ({"mode": "interval", "interval_range_s": ()}, "interval_range_s"),
        ({"mode": "interval", "interval_range_s": (0.1,)}, "interval_range_s"),
        ({"mode": "interval", "interval_range_s": (0.1, float("nan"))}, "interval_range_s"),
        ({"mode": "interval", "interval_range_s": (0.1, float("inf"))}, "interval_range_s"),
        (
            {
                "mode": "interval",
                "interval_range_s": (1.0, 1.0),
                "is_global_time": True,
                "resample_on_reset": False,
            },
            "is_global_time=True has none",
        ),
        (
            {"mode": "interval", "interval_range_s": (1.0, 1.0), "min_step_count_between_reset": 2},
            "min_step_count_between_reset is for mode 'reset'; a term of mode 'interval' does not use it",
        ),
        *(
            (
                {"mode": mode} | setting,
                f"{next(iter(setting))} is for mode 'interval'; a term of mode '{mode}'",
            )
            for mode in ("startup", "reset", "step")
            for setting in (
                {"interval_range_s": (1.0, 2.0)},
                {"is_global_time": True},
                {"resample_on_reset": False},
            )
        ),
        (
            {"mode": "startup", "min_step_count_between_reset": 1},
            "is for mode 'reset'; a term of mode 'startup'",
        ),
        ({"mode": "step", "min_step_count_between_reset": 1}, "is for mode 'reset'; a term of mode 'step'"),
        ({"mode": "reset", "min_step_count_between_reset": -1}, "min_step_count_between_reset"),
        ({"mode": "resett"}, "mode"),
        ({}, "mode"),
    ],
)
def test_fields_that_do_not_fit_the_mode_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EventTermCfg(func=fired, **settings)
    with pytest.raises(ValueError, match=message):
        EventTermCfg(func=fired, **settings)


def test_a_wrong_field_is_named_with_its_path_in_a_task(make_env: MakeEnv) -> None:
    with pytest.raises(ConfigError, match=r"events\.push: mode 'interval' needs interval_range_s"):
        ManagerBasedRlEnvCfg.model_validate(
            {
                "observations": {},
                "actions": {},
                "rewards": {},
                "terminations": {},
                "events": {"push": {"func": "event_support:fired", "mode": "interval"}},
            }
        )


@pytest.mark.parametrize("kind", [OldForm, WithoutCall])
def test_a_class_without_call_is_refused_and_shown_the_form_of_this_version(kind: type) -> None:
    message = (
        rf"{kind.__name__} has no __call__; the event itself is `def __call__\(self, env, env_ids, \*\*params\)`, made "
        r"by `def __init__\(self, cfg, env\)`; `def reset\(self, env_ids\)` only clears"
    )
    with pytest.raises(ConfigError, match=message):
        EventTermCfg(func=kind, mode="reset")


def test_a_config_survives_yaml_in_every_mode() -> None:
    for cfg in (
        EventTermCfg(func=noted_event, mode="startup"),
        EventTermCfg(func=noted_event, mode="step", params={"tag": "t"}),
        EventTermCfg(func=noted_event, mode="reset", min_step_count_between_reset=3),
        EventTermCfg(func=noted_event, mode="interval", interval_range_s=(1.0, 2.5), resample_on_reset=False),
        EventTermCfg(func=noted_event, mode="interval", interval_range_s=(1, 2), is_global_time=True),
    ):
        assert EventTermCfg.from_yaml(cfg.to_yaml()) == cfg


def fire_steps(make_env: MakeEnv, term: EventTermCfg) -> list[list[int]]:
    """Runs ten steps with a reset of row 1 after step 3; returns the steps at which the term fired, by row."""
    env = make_env(2, events={"e": term})
    calls.clear()
    run(env, 3)
    env.reset(ids(1))
    run(env, 7)
    return [steps_of(0), steps_of(1)]


def test_every_field_changes_something(make_env: MakeEnv) -> None:
    base = interval(0.08)
    assert fire_steps(make_env, base) == [[4, 8], [7]]
    changed: dict[str, tuple[EventTermCfg, Any]] = {
        "mode": (EventTermCfg(func=fired, mode="step"), [[*range(1, 11)]] * 2),
        "interval_range_s": (interval(0.06), [[3, 6, 9], [3, 6, 9]]),
        "is_global_time": (interval(0.08, is_global_time=True), [[4, 8], [4, 8]]),
        "resample_on_reset": (interval(0.08, resample_on_reset=False), [[4, 8], [4, 8]]),
        "params": (interval(0.08, tag="other"), [[], []]),
        "func": (interval(0.08, func=noted_event), None),
        "min_step_count_between_reset": (
            EventTermCfg(func=fired, mode="reset", min_step_count_between_reset=4),
            [[], []],
        ),
    }
    assert set(changed) == set(EventTermCfg.model_fields)
    for name, (term, expected) in changed.items():
        if name == "func":
            calls.clear()
            env = make_env(2, events={"e": term})
            calls.clear()
            run(env, 4)
            assert calls == [("event", torch.int64, 1, [0, 1])]
        else:
            assert fire_steps(make_env, term) == expected, name
    # Without a gap between resets the partial reset at step 3 triggers.
    assert fire_steps(make_env, EventTermCfg(func=fired, mode="reset")) == [[], [3]]
