"""Tasks by name."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from unilab_core import TaskSpec, UnknownNameError, get_task, list_tasks, register_task, registry


@pytest.fixture(autouse=True)
def tasks(monkeypatch):
    """An empty registry without installed packages; returns the list of its entry points."""
    points = []
    monkeypatch.setattr(registry, "_REGISTRY", registry._Registry())
    monkeypatch.setattr(registry, "entry_points", lambda group: points if group == "unilab.tasks" else [])
    return points


def entry(name, function):
    return SimpleNamespace(
        name=name, group="unilab.tasks", value=f"{name}:register", dist=None, load=lambda: function
    )


CARTPOLE = TaskSpec("cartpole-balance", "core_support:scripted_task", summary="Balance")


def test_a_registered_task_is_found_whatever_the_case():
    register_task(CARTPOLE)
    assert get_task("cartpole-balance") is get_task("CartPole-Balance") is CARTPOLE


def test_tasks_are_listed_by_name():
    for name in ("b-task", "a-task", "c"):
        register_task(TaskSpec(name, "m:f"))
    assert [task.name for task in list_tasks()] == ["a-task", "b-task", "c"]


def test_an_unknown_task_is_answered_with_the_nearest():
    register_task(CARTPOLE)
    with pytest.raises(UnknownNameError) as caught:
        get_task("cartpole-balence")
    assert str(caught.value) == (
        "unknown task 'cartpole-balence'; did you mean 'cartpole-balance'? (`unilab list` shows all tasks)"
    )
    assert isinstance(caught.value, KeyError)


def test_without_any_task_that_is_said():
    with pytest.raises(UnknownNameError, match="unknown task 'x'; there are none"):
        get_task("x")


def test_the_same_task_may_be_registered_again():
    register_task(CARTPOLE)
    register_task(TaskSpec("cartpole-balance", "core_support:scripted_task", summary="Balance"))
    assert len(list_tasks()) == 1


def test_another_task_of_the_same_name_is_refused():
    register_task(CARTPOLE)
    with pytest.raises(ValueError, match="'cartpole-balance' is taken by core_support:scripted_task"):
        register_task(TaskSpec("cartpole-balance", "other:task"))
    assert get_task("cartpole-balance") is CARTPOLE


@pytest.mark.parametrize("name", ["CartPole", "cart pole", "", "cart/pole", "-"])
def test_a_name_that_nobody_could_type_is_refused(name):
    with pytest.raises(ValueError, match="expected lower-case letters, digits, hyphens"):
        register_task(TaskSpec(name, "m:f"))


def test_installed_packages_register_their_tasks_when_first_asked(tasks):
    calls = []

    def register():
        calls.append(1)
        register_task(CARTPOLE)

    tasks.append(entry("cartpole", register))
    assert get_task("cartpole-balance") is CARTPOLE
    list_tasks()
    assert calls == [1]


PROBLEM = (
    "unilab.tasks entry point 'broken' (broken:register) cannot be loaded: LookupError: 'broken package'"
)


def test_a_package_that_fails_to_register_is_named_and_hides_no_task_of_others(tasks, caplog):
    def fail():
        register_task(TaskSpec("half-of-it", "m:f"))
        raise LookupError("'broken package'")

    tasks.append(entry("broken", fail))
    tasks.append(entry("cartpole", lambda: register_task(CARTPOLE)))
    for _ in range(2):
        assert list_tasks() == (CARTPOLE,)
        with pytest.raises(UnknownNameError) as caught:
            get_task("half-of-it")
        assert str(caught.value) == (
            "unknown task 'half-of-it'; valid names: 'cartpole-balance' (`unilab list` shows all tasks)"
            f"; {PROBLEM}"
        )
    assert caplog.messages == [f"{PROBLEM}; its tasks are left out"]


def test_a_package_that_leaves_is_left_out_and_an_interrupt_is_not_kept_from_the_user(tasks, caplog):
    def leave():
        register_task(TaskSpec("half-of-it", "m:f"))
        raise raised

    raised = SystemExit("no licence")
    tasks.append(entry("broken", leave))
    tasks.append(entry("cartpole", lambda: register_task(CARTPOLE)))
    assert list_tasks() == (CARTPOLE,)
    (message,) = caplog.messages
    assert message.endswith("cannot be loaded: SystemExit: no licence; its tasks are left out")
    raised = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        list_tasks()


def test_a_package_that_failed_is_asked_again_and_others_are_not(tasks):
    calls = []

    def register():
        calls.append(1)
        if len(calls) == 1:
            raise LookupError("not yet")
        register_task(TaskSpec("late", "m:f"))

    tasks.append(entry("broken", register))
    tasks.append(entry("cartpole", lambda: (calls.append("cartpole"), register_task(CARTPOLE))))
    assert list_tasks() == (CARTPOLE,)
    assert [task.name for task in list_tasks()] == ["cartpole-balance", "late"]
    list_tasks()
    assert calls == [1, "cartpole", 1]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (TaskSpec("a", "module"), "'a': env_cfg is 'module', expected 'package.module:function'"),
        (TaskSpec("a", ":f"), "'a': env_cfg is ':f'"),
        (TaskSpec("a", "m:f", {"ppo": "m:"}), r"'a': learners\['ppo'\] is 'm:'"),
        (TaskSpec("a", "m:f", evaluation="calm"), "'a': evaluation is 'calm'"),
    ],
)
def test_a_function_that_nobody_could_import_is_refused(spec, message):
    with pytest.raises(ValueError, match=message):
        register_task(spec)
    assert list_tasks() == ()


def test_a_task_may_say_what_it_is_measured_on():
    register_task(TaskSpec("a", "m:f", evaluation="m:calm"))
    assert get_task("a").evaluation == "m:calm"
    assert CARTPOLE.evaluation == ""
