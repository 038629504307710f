"""Terms name their own columns."""

from types import SimpleNamespace

import pytest
from manager_support import MakeEnv, layout_of

from unilab_core import SceneEntityCfg
from unilab_managers.mdp import labels, observations


def test_a_marked_term_tells_its_unit_and_its_columns(make_env: MakeEnv) -> None:
    @labels.columns(unit="m", names=labels.fixed_columns("near", "far"))
    def ranges(env: object) -> None: ...

    names = labels.column_names(ranges)
    assert names is not None
    assert names(make_env()) == ("near", "far")
    assert labels.column_unit(ranges) == "m"


def test_a_class_term_is_marked_alike() -> None:
    @labels.columns(unit="N", names=labels.fixed_columns("left"))
    class Force: ...

    assert labels.column_unit(Force) == "N"


def test_a_term_that_says_nothing_has_no_names() -> None:
    def silent() -> None: ...

    assert labels.column_names(silent) is None
    assert labels.column_unit(silent) is None


def test_joint_columns_follow_the_order_that_the_term_uses(make_env: MakeEnv) -> None:
    env = make_env(layout=layout_of("a", "b", "c"))
    for names, order, expected in (
        (None, False, ("a", "b", "c")),
        (("c", "a"), False, ("a", "c")),
        (("c", "a"), True, ("c", "a")),
        (("[bc]",), False, ("b", "c")),
    ):
        cfg = SceneEntityCfg(joint_names=names, preserve_order=order)
        assert labels.joint_columns(env, asset_cfg=cfg) == expected


def test_action_columns_are_the_labels_of_the_actions(make_env: MakeEnv) -> None:
    assert labels.action_columns(make_env()) == ("effort:slider", "effort:hinge")


def test_command_columns_are_the_labels_of_the_command(
    make_env: MakeEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = make_env()
    terms = {"twist": SimpleNamespace(labels=("vx", "wz"))}
    monkeypatch.setattr(env, "command_manager", SimpleNamespace(get_term=terms.__getitem__), raising=False)
    assert labels.command_columns(env, "twist") == ("vx", "wz")


def test_every_observation_term_names_its_columns() -> None:
    for name in observations.__all__:
        term = getattr(observations, name)
        assert labels.column_names(term) is not None, name
        assert labels.column_unit(term) is not None, name
