"""How names become columns: patterns, order, and messages with the nearest names."""

from __future__ import annotations

import pytest
import torch
from core_support import ScriptedEnv
from hypothesis import given
from hypothesis import strategies as st

from unilab_core import SceneEntityCfg, UnknownNameError
from unilab_core.entity_cfg import chosen_columns, column_index, match_names
from unisim.testing import make_layout

ABC = ("a", "b", "c")


def match(patterns, names=ABC, preserve_order=False):
    return match_names(patterns, names, preserve_order=preserve_order, owner="robot joint_names")


def test_no_patterns_mean_all_names_in_the_models_order():
    assert match(None) == [0, 1, 2]


def test_qa_040_the_models_order_is_used_unless_the_given_one_is_asked_for():
    assert match(["c", "a", "b"]) == [0, 1, 2]
    assert match(["c", "a", "b"], preserve_order=True) == [2, 0, 1]


def test_a_pattern_matches_whole_names_only():
    names = ("hip", "hip_left", "left_hip")
    assert match(["hip"], names) == [0]
    assert match([".*left.*"], names) == [1, 2]


def test_within_one_pattern_the_models_order_holds():
    assert match(["[bc]", "a"], preserve_order=True) == [1, 2, 0]


@pytest.mark.parametrize(
    ("patterns", "names", "message"),
    [
        (["hpi"], ("hip", "knee"), r"'hpi' matches nothing; did you mean 'hip'\?"),
        (["zzz"], ("hip", "knee"), "'zzz' matches nothing; valid names: 'hip', 'knee'"),
        (["h.*", "hip"], ("hip", "knee"), r"'hip' is matched by two of \('h.*', 'hip'\)"),
        (["("], ("hip",), r"'\(' is not a regular expression: "),
        (["a"], (), "'a' matches nothing; there are none"),
    ],
)
def test_a_pattern_that_means_nothing_or_twice_is_named(patterns, names, message):
    with pytest.raises(ValueError, match=f"^robot joint_names: {message}"):
        match(patterns, names)


@given(st.permutations(["a", "b", "c", "d", "e"]), st.integers(1, 5))
def test_order_is_preserved_for_every_selection(order, number):
    names = ("a", "b", "c", "d", "e")
    chosen = order[:number]
    assert [names[i] for i in match(chosen, names, preserve_order=True)] == chosen
    assert [names[i] for i in match(chosen, names)] == sorted(chosen)


@given(st.lists(st.integers(0, 6), unique=True, max_size=5))
def test_a_column_index_selects_as_plain_indexing_does(ids):
    values = torch.arange(14.0).reshape(2, 7)
    assert values[:, column_index(ids, torch.device("cpu"))].tolist() == [
        [row[i] for i in ids] for row in values.tolist()
    ]


def test_consecutive_columns_are_a_view():
    values = torch.zeros(2, 5)
    index = column_index([1, 2, 3], torch.device("cpu"))
    assert values[:, index].untyped_storage().data_ptr() == values.untyped_storage().data_ptr()


@pytest.mark.parametrize("ids", [[4, 5, 6, 7], [1, 2, 4, 9]])
@pytest.mark.parametrize(
    "chosen",
    [
        slice(None),
        slice(1, 3),
        slice(-2, None),
        slice(3, 1),
        slice(0, 4, 2),
        slice(7, 9),
        torch.tensor([3, 0]),
    ],
    ids=str,
)
def test_chosen_columns_are_those_that_plain_indexing_chooses(ids, chosen):
    columns, values = torch.tensor(ids), torch.arange(10.0).expand(2, -1)
    index = column_index(ids, torch.device("cpu"))
    found, count = chosen_columns(columns, index, chosen)
    assert torch.equal(values[:, found], values[:, columns[chosen]])
    assert count == columns[chosen].numel()
    plain = isinstance(index, slice) and isinstance(chosen, slice) and chosen.step is None
    assert isinstance(found, slice) == plain


def test_columns_that_are_not_there_cannot_be_chosen():
    for ids in ([4, 5], [4, 7]):
        with pytest.raises(IndexError):
            chosen_columns(torch.tensor(ids), column_index(ids, torch.device("cpu")), torch.tensor([2]))


def test_an_entity_knows_its_own_elements_without_the_prefix():
    layout = make_layout(
        joints=("robot/a", "robot/b", "ball/x"), actuated=("ball/x", "robot/b"), sites=("robot/s",)
    )

    class Env(ScriptedEnv):
        num_actions = 2

    with Env(2, layout=layout) as env:
        robot, ball = env.scene["robot"], env.scene["ball"]
        assert (robot.joint_names, ball.joint_names) == (("a", "b"), ("x",))
        assert (robot.actuator_names, ball.actuator_names) == (("b",), ("x",))
        assert (robot.body_names, robot.site_names, ball.site_names) == (("base",), ("s",), ())
        assert ball.control_ids(["x"]) == slice(0, 1)
        assert robot.control_ids(["b"]) == slice(1, 2)
        assert list(env.scene) == ["robot", "ball"]
        assert len(env.scene) == 2


def test_qa_040_joint_columns_follow_the_given_order_also_when_all_are_given():
    layout = make_layout(joints=("robot/a", "robot/b", "robot/c"), actuated=("robot/a",))
    with ScriptedEnv(1, layout=layout) as env:
        robot = env.scene["robot"]
        env.inject["_stage_reset"] = lambda ids: robot.data.write_joint_state(
            torch.tensor([[1.0, 2.0, 3.0]]), torch.zeros(1, 3), ids
        )
        env.reset()
        ordered = SceneEntityCfg(joint_names=("c", "a", "b"), preserve_order=True)
        assert robot.data.joint_pos[:, robot.joint_ids(ordered)].tolist() == [[3.0, 1.0, 2.0]]
        native = SceneEntityCfg(joint_names=("c", "a", "b"))
        assert robot.data.joint_pos[:, robot.joint_ids(native)].tolist() == [[1.0, 2.0, 3.0]]


def test_qa_040_writes_follow_the_given_order_too():
    layout = make_layout(joints=("robot/a", "robot/b", "robot/c"), actuated=("robot/a",))
    with ScriptedEnv(1, layout=layout) as env:
        robot = env.scene["robot"]
        ids_of = robot.joint_ids(SceneEntityCfg(joint_names=("c", "a", "b"), preserve_order=True))
        env.inject["_stage_reset"] = lambda ids: robot.data.write_joint_state(
            torch.tensor([[1.0, 2.0, 3.0]]), torch.zeros(1, 3), ids, ids_of
        )
        env.reset()
        assert robot.data.joint_pos.tolist() == [[2.0, 3.0, 1.0]]


def test_an_unknown_entity_is_a_key_error_with_the_nearest():
    with ScriptedEnv(1) as env, pytest.raises(UnknownNameError) as caught:
        env.scene["robto"]
    assert isinstance(caught.value, KeyError)
    assert str(caught.value) == "scene: unknown entity 'robto'; did you mean 'robot'?"


def test_control_ranges_are_those_of_the_model():
    with ScriptedEnv(1) as env:
        low, high = env.scene["robot"].control_ranges(["slider"])
    assert (low.tolist(), high.tolist()) == ([-1.0], [1.0])


@pytest.mark.parametrize("call", ["control_ids", "control_ranges"])
def test_an_unknown_actuator_is_a_key_error_with_the_nearest(call):
    with (
        ScriptedEnv() as env,
        pytest.raises(UnknownNameError, match=r"^robot: unknown actuator 'slidr'; did you mean 'slider'\?$"),
    ):
        getattr(env.scene["robot"], call)(["slidr"])


@pytest.mark.parametrize("kind", ["joint", "body", "site", "geom", "actuator", "sensor"])
def test_a_term_may_name_every_kind_of_element(kind):
    cfg = SceneEntityCfg(**{f"{kind}_names": ("a", "b.*")})
    assert SceneEntityCfg.from_yaml(cfg.to_yaml()) == cfg


def test_an_entity_gives_its_own_sensors_by_their_own_names():
    layout = make_layout(sensors={"robot/imu": (3, "velocity"), "world": (1, "velocity")})

    class Sensing(ScriptedEnv):
        def _rewards(self) -> torch.Tensor:
            return self.scene["robot"].data.sensor("imu")[:, 0]

    with Sensing(layout=layout) as env:
        assert env.scene["robot"].sensor_names == ("imu",)
        assert "sensor:robot/imu" in env.describe().reads
        with pytest.raises(KeyError, match="unknown sensor 'robot/imv'; did you mean 'robot/imu'"):
            env.scene["robot"].data.sensor("imv")
