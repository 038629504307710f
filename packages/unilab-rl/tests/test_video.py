"""Films appear whole or not at all, and run in real time."""

import sys
from fractions import Fraction

import av
import pytest
import torch
from av.codec.codec import UnknownCodecError
from rl_support import ScriptedEnv, ScriptedEnvCfg

from unilab_core import CapabilityError
from unilab_rl import ZeroPolicy
from unilab_rl.viewing.film import film, steps_per_frame
from unilab_rl.viewing.video import VideoWriter, require_video


def frame(grey, height=16, width=24):
    return torch.full((height, width, 3), grey, dtype=torch.uint8)


def write(path, greys, *, frame_s=0.02, **size):
    with VideoWriter(path, frame_s=frame_s) as writer:
        for grey in greys:
            writer.add(frame(grey, **size))


def read(path):
    """Returns the frames' greys, their times in seconds, and (height, width)."""
    with av.open(str(path)) as container:
        decoded = list(container.decode(video=0))
    greys = [round(float(picture.to_ndarray(format="rgb24").mean())) for picture in decoded]
    return greys, [picture.time for picture in decoded], decoded[0].to_ndarray(format="rgb24").shape[:2]


def test_a_film_holds_its_frames_in_order_and_in_real_time(tmp_path):
    write(tmp_path / "film.mp4", [0, 100, 200])
    greys, times, size = read(tmp_path / "film.mp4")
    assert greys == pytest.approx([0, 100, 200], abs=3)
    assert times == pytest.approx([0.0, 0.02, 0.04])
    assert size == (16, 24)
    with av.open(str(tmp_path / "film.mp4")) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
        assert stream.average_rate == Fraction(50)
    assert [path.name for path in tmp_path.iterdir()] == ["film.mp4"]


def test_a_rate_that_no_binary_fraction_hits_is_the_nearest_simple_one(tmp_path):
    write(tmp_path / "film.mp4", [0, 0], frame_s=1 / 60)
    with av.open(str(tmp_path / "film.mp4")) as container:
        assert container.streams.video[0].average_rate == Fraction(60)


def test_an_odd_row_and_column_are_cut_off(tmp_path):
    write(tmp_path / "film.mp4", [0], height=17, width=25)
    assert read(tmp_path / "film.mp4")[2] == (16, 24)


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ValueError], ids=["interrupt", "exception"])
def test_a_film_that_was_not_finished_leaves_the_old_file_and_nothing_else(tmp_path, failure):
    path = tmp_path / "film.mp4"
    path.write_bytes(b"old")

    def fail_after_a_frame():
        with VideoWriter(path, frame_s=0.02) as writer:
            writer.add(frame(0))
            raise failure

    with pytest.raises(failure):
        fail_after_a_frame()
    assert path.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["film.mp4"]


def test_a_film_replaces_an_old_one_when_it_is_whole(tmp_path):
    path = tmp_path / "film.mp4"
    path.write_bytes(b"old")
    with VideoWriter(path, frame_s=0.02) as writer:
        writer.add(frame(50))
        assert path.read_bytes() == b"old"
    assert read(path)[0] == pytest.approx([50], abs=3)


def test_a_film_without_frames_is_none(tmp_path):
    write(tmp_path / "film.mp4", [])
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_an_os_error(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        VideoWriter(tmp_path / "nowhere" / "film.mp4", frame_s=0.02)


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError], ids=["interrupt", "exception"])
def test_a_film_that_cannot_be_opened_leaves_nothing(tmp_path, monkeypatch, failure):
    def refuse(*_, **__):
        raise failure

    monkeypatch.setattr(av, "open", refuse)
    with pytest.raises(failure):
        VideoWriter(tmp_path / "film.mp4", frame_s=0.02)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_encoder_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(CapabilityError, match=r'videos need PyAV: pip install "unilab-rl\[video\]>=2.0,<3"'):
        VideoWriter(tmp_path / "film.mp4", frame_s=0.02)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("step_dt", "steps"), [(0.5, 1), (0.02, 1), (1 / 60, 1), (0.01, 2), (0.005, 4)])
def test_a_film_has_at_most_60_frames_a_second(step_dt, steps):
    assert steps_per_frame(step_dt) == steps


def greys(env, **settings):
    frames = film(env, ZeroPolicy(2), camera=None, seed=3, **settings)
    return [int(picture[0, 0, 0]) for picture in frames]


def test_a_film_begins_with_the_reset_and_follows_one_row_through_its_episodes():
    # The grey is 10 times the row plus the age in the episode, which ends after 3 steps.
    env = ScriptedEnv(ScriptedEnvCfg(steps=3))
    assert greys(env, row=2, steps=5) == [20, 21, 22, 20, 21, 22]
    assert env.seeds[-1] == 3


def test_steps_between_two_frames_are_taken_without_being_drawn():
    env = ScriptedEnv(ScriptedEnvCfg(steps=9))
    env.step_dt = 0.005
    assert greys(env, row=0, steps=9) == [0, 4, 8]


def test_an_ffmpeg_without_an_h264_encoder_says_where_one_is(monkeypatch):
    def unknown(name, mode):
        raise UnknownCodecError(name)

    monkeypatch.setattr(av, "Codec", unknown)
    with pytest.raises(CapabilityError, match="need an H.264 encoder.*wheels of PyAV hold one"):
        require_video()
