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
    return SimpleNamespace(name=name, load=lambda: function)


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


def test_a_package_that_fails_to_register_fails_every_time(tasks):
    def fail():
        raise LookupError("broken package")

    tasks.append(entry("broken", fail))
    for _ in range(2):
        with pytest.raises(LookupError, match="broken package"):
            list_tasks()


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
