"""`unilab play --video`, as a person types it."""

import os
import re
import sys

import av
import pytest
from rl_support import COUNTING, ScriptedEnv, python

from unilab_core import CapabilityError
from unilab_core.cli import main


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("MUJOCO_GL", "egl")  # what the command sets would outlive the test
    COUNTING.made.clear()


@pytest.fixture
def acted(monkeypatch):
    """The actions of every step, and the configs of the environments that were played."""
    seen = {"actions": [], "cfg": None, "seeds": None}

    def step(self, actions, step=ScriptedEnv.step):
        seen["actions"].append(actions.clone())
        seen["cfg"], seen["seeds"] = self.cfg, self.seeds
        return step(self, actions)

    monkeypatch.setattr(ScriptedEnv, "step", step)
    return seen


def run(capsys, *args):
    code = main(args)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def play(capsys, *args):
    code, out, err = run(capsys, "play", *args)
    assert (code, err) == (0, "")
    return out


def trained(tmp_path, capsys, task="scripted"):
    assert main(["train", task, "--backend", "scripted", "--seed", "5"]) == 0
    capsys.readouterr()
    (path,) = (tmp_path / "runs" / task).iterdir()
    return path.relative_to(tmp_path)


def frames(path):
    with av.open(str(path)) as container:
        decoded = [picture.to_ndarray(format="rgb24") for picture in container.decode(video=0)]
    return [round(float(picture.mean())) for picture in decoded]


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_run_is_filmed_into_its_folder(tmp_path, capsys, acted):
    path = trained(tmp_path, capsys)
    acted["actions"].clear()
    out = play(capsys, "latest", "--video")
    assert out.splitlines() == [
        "scripted, policy trained, seed 1000005, row 0",
        f"video: {path}/videos/model_3.mp4 (2.5 s)",
    ]
    # One time limit is 5 steps; the last frame is the first of the next episode.
    assert frames(path / "videos" / "model_3.mp4") == pytest.approx([0, 1, 2, 3, 4, 0], abs=2)
    assert len(acted["actions"]) == 5
    assert acted["actions"][0][0].tolist() == pytest.approx([0.3, 0.3])
    assert acted["seeds"] == [1_000_005, 1_000_005]


def test_a_video_that_is_named_by_itself_gets_the_next_free_number(tmp_path, capsys):
    path = trained(tmp_path, capsys)
    for _ in range(3):
        play(capsys, str(path), "--video")
    play(capsys, str(path / "checkpoints" / "model_2.pt"), "--video", "--policy", "zero")
    assert files(path / "videos") == ["model_2-zero.mp4", "model_3-2.mp4", "model_3-3.mp4", "model_3.mp4"]


def test_a_run_is_shown_as_it_is_measured_or_as_it_was_trained(tmp_path, capsys, acted):
    trained(tmp_path, capsys, "scripted-graded")
    out = play(capsys, "latest", "--video", "--set", "steps=7")
    assert "evaluation config rl_support:graded_cfg" in out
    assert (acted["cfg"].gain, acted["cfg"].steps, acted["cfg"].num_envs) == (2.0, 7, 64)
    play(capsys, "latest", "--video", "--as-trained")
    assert (acted["cfg"].gain, acted["cfg"].steps) == (1.0, 5)


def test_a_task_is_filmed_with_a_policy_that_nobody_trained(tmp_path, capsys, acted):
    out = play(capsys, "Scripted", "--video", "--backend", "scripted")
    assert out.splitlines() == [
        "scripted, policy zero, seed 0, row 0",
        "video: scripted-zero.mp4 (2.5 s)",
    ]
    assert not any(actions.any() for actions in acted["actions"])
    play(capsys, "scripted", "--video", "a.mp4", "--policy", "random", "--seed", "4")
    first = [actions for actions in acted["actions"][5:]]
    assert all(actions.abs().max() > 0.9 for actions in first)
    play(capsys, "scripted", "--video", "b.mp4", "--policy", "random", "--seed", "4")
    assert [a.tolist() for a in acted["actions"][10:]] == [a.tolist() for a in first]
    assert files(tmp_path) == ["a.mp4", "b.mp4", "scripted-zero.mp4"]


def test_the_row_and_the_length_can_be_chosen(tmp_path, capsys):
    play(capsys, "scripted", "--video", "a.mp4", "--row", "7", "--steps", "3")
    assert frames(tmp_path / "a.mp4") == pytest.approx([70, 71, 72, 73], abs=2)
    out = play(capsys, "scripted", "--video", "b.mp4", "--seconds", "1")
    assert "b.mp4 (1 s)" in out
    assert len(frames(tmp_path / "b.mp4")) == 3


def test_rows_beyond_those_that_are_measured_can_be_seen(tmp_path, capsys, acted):
    play(capsys, "scripted", "--video", "a.mp4", "--row", "70", "--steps", "1")
    assert acted["cfg"].num_envs == 71


def test_the_camera_is_passed_on(tmp_path, capsys, monkeypatch):
    seen = []

    def render(self, row, camera=None, render=ScriptedEnv.render):
        seen.append(camera)
        return render(self, row, camera)

    monkeypatch.setattr(ScriptedEnv, "render", render)
    play(capsys, "scripted", "--video", "a.mp4", "--camera", "distance=4.0", "--camera", "width=320")
    assert {(camera.distance, camera.width, camera.azimuth) for camera in seen} == {(4.0, 320, 135.0)}


def test_a_file_that_is_there_is_replaced_only_by_force(tmp_path, capsys):
    (tmp_path / "a.mp4").write_bytes(b"old")
    code, out, err = run(capsys, "play", "scripted", "--video", "a.mp4")
    assert (code, out) == (2, "")
    assert "--video a.mp4: is there already; --force replaces it" in err
    assert (tmp_path / "a.mp4").read_bytes() == b"old"
    play(capsys, "scripted", "--video", "a.mp4", "--force", "--steps", "1")
    assert len(frames(tmp_path / "a.mp4")) == 2


def test_a_folder_is_not_replaced_by_a_video_even_by_force(tmp_path, capsys):
    (tmp_path / "a.mp4").mkdir()
    code, _, err = run(capsys, "play", "scripted", "--video", "a.mp4", "--force")
    assert (code, "--video a.mp4: is a folder" in err) == (2, True)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("scripted",), "there is no viewer window yet, play only writes videos: add --video"),
        ((), "Missing argument 'RUN_OR_TASK'"),
        (("scriptd", "--video"), "'scriptd' is neither a run nor a task; did you mean 'scripted'"),
        (("latest", "--video"), "no runs below 'runs' yet"),
        (("scripted", "--video", "a.gif"), "--video a.gif: expected a name that ends in .mp4"),
        (("scripted", "--video", "no/a.mp4"), "--video no/a.mp4: there is no folder no"),
        (("scripted", "--video", "--policy", "trained"), "--policy trained needs a run"),
        (
            ("scripted", "--video", "--steps", "3", "--seconds", "2"),
            "--steps and --seconds contradict each other",
        ),
        (("scripted", "--video", "--steps", "0"), "0 is not in the range"),
        (("scripted", "--video", "--row", "9", "--set", "num_envs=4"), "--row 9: there are 4 environments"),
        (("scripted", "--video", "--set", "gian=1"), "unknown key 'gian'; did you mean 'gain'?"),
        (("scripted", "--video", "--camera", "distanc=1"), "--camera: override 'distanc': unknown key"),
        (("scripted", "--video", "--camera", "distance=-1.0"), "--camera: CameraCfg: distance"),
        (("scripted", "--video", "--camera", "track=tail"), "--camera: unknown body 'tail'"),
        (("scripted", "--video", "--backend", "nothing"), "unknown backend 'nothing'"),
    ],
)
def test_bad_input_is_one_message_on_stderr_exit_code_2_and_no_file(tmp_path, capsys, args, message):
    code, out, err = run(capsys, "play", *args)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_for_videos_is_said_before_anything_is_built(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    code, _, err = run(capsys, "play", "scripted", "--video")
    assert code == 2
    assert 'videos need PyAV: pip install "unilab-rl[video]>=2.0,<3"' in err
    assert list(tmp_path.iterdir()) == []


def test_a_backend_that_cannot_draw_says_so_and_leaves_no_file(tmp_path, capsys, monkeypatch):
    def refuse(self, row, camera=None):
        raise CapabilityError("OpenGL does not start; set MUJOCO_GL")

    monkeypatch.setattr(ScriptedEnv, "render", refuse)
    code, _, err = run(capsys, "play", "scripted", "--video")
    assert (code, err) == (2, "Error: OpenGL does not start; set MUJOCO_GL\n")
    assert list(tmp_path.iterdir()) == []


def test_a_failing_step_leaves_no_half_video(tmp_path, capsys):
    code, _, err = run(
        capsys, "play", "scripted", "--video", "--set", "fail_at=3", "--set", "fails_with=NonFiniteError"
    )
    assert code == 1
    assert "boom at step 3" in err
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_leaves_no_half_video(tmp_path, capsys, monkeypatch):
    def step(self, actions):
        raise KeyboardInterrupt

    monkeypatch.setattr(ScriptedEnv, "step", step)
    code, _, err = run(capsys, "play", "scripted", "--video")
    assert code == 1
    assert err.endswith("Interrupted.\n")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_no_run_does_not_hide_a_task_of_its_name(tmp_path, capsys):
    (tmp_path / "scripted").mkdir()
    assert "scripted-zero.mp4" in play(capsys, "scripted", "--video", "--steps", "1")
    (tmp_path / "other").mkdir()
    code, _, err = run(capsys, "play", "other", "--video")
    assert (code, "'other' is not a run" in err) == (2, True)


PROGRAM = """
import os
from unilab_rl.cli.play import _use_offscreen_gl
_use_offscreen_gl()
print(os.environ.get("MUJOCO_GL"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a window system is always there")
def test_opengl_is_chosen_before_a_task_can_import_the_engine(capsys, monkeypatch):
    found = []
    monkeypatch.delenv("MUJOCO_GL")
    monkeypatch.setenv("DISPLAY", "")
    monkeypatch.setenv("WAYLAND_DISPLAY", "")
    monkeypatch.setattr("rl_support.scripted_cfg", lambda: found.append(os.environ.get("MUJOCO_GL")))
    run(capsys, "play", "scripted", "--video")
    assert found == ["egl"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a window system is always there")
@pytest.mark.parametrize(
    ("display", "chosen", "used"), [("", "", "egl"), ("", "osmesa", "osmesa"), (":0", "", "None")]
)
def test_without_a_screen_opengl_draws_without_one_unless_somebody_chose(display, chosen, used):
    settings = {"DISPLAY": display, "WAYLAND_DISPLAY": ""} | ({"MUJOCO_GL": chosen} if chosen else {})
    held = os.environ.pop("MUJOCO_GL")
    try:
        process = python("-c", PROGRAM, env=settings)
        out, err = process.communicate()
    finally:
        os.environ["MUJOCO_GL"] = held
    assert (out.strip(), err) == (used, "")


def test_the_help_has_examples_that_name_the_options(capsys):
    code, out, _ = run(capsys, "play", "--help")
    assert code == 0
    assert re.search(r"unilab play latest --video", out)
