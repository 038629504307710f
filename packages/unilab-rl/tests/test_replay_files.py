"""A replay continues exactly where its state or file was taken, and a bad state is one clear error."""

import pytest
import torch
from replay_support import Stream, contents, equal, every_window, make_replay, same

from unilab_rl import replay_file
from unilab_rl.replay_file import read_replay_file, write_replay_file

SCRIPT = (
    *[("go", "go"), ("go", "truncated"), ("refused", "go"), ("go", "terminated"), ("go", "go")] * 3,
    ("go", "go"),
)


def played(steps=16, **settings):
    stream = Stream(make_replay(2, 6, n_step=3, **settings))
    for kinds in SCRIPT[:steps]:
        stream.add(kinds)
    return stream


def batches(replay, count=4):
    return [replay.sample(8) for _ in range(count)]


def through_state(replay, other, folder):
    torch.save(contents(replay), folder / "state.pt")
    other.load_state(torch.load(folder / "state.pt", weights_only=True))


def save(replay, path):
    return write_replay_file(path, replay.mark().restore())


def load(replay, path, digest):
    replay.load_state(read_replay_file(path, digest=digest).restore())


def through_file(replay, other, folder):
    load(other, folder / "replay.bin", save(replay, folder / "replay.bin"))


@pytest.mark.parametrize("through", [through_state, through_file])
@pytest.mark.parametrize("steps", [1, 3, len(SCRIPT)], ids=["one step", "half full", "full"])
def test_qa_088_a_resumed_replay_goes_on_bit_for_bit(tmp_path, through, steps):
    stream = played(steps)
    replay = stream.replay
    batches(replay, 1)
    resumed = played(len(SCRIPT) - 2, seed=9).replay  # what it held before is gone
    through(replay, resumed, tmp_path)
    assert equal(contents(resumed), contents(replay))
    assert every_window(resumed) == every_window(replay)
    assert same(batches(resumed), batches(replay))
    # Open windows go on too: the same next steps give the same.
    for _ in range(5):
        for kinds in SCRIPT[:3]:
            recorded = []
            stream.replay.add_rows = lambda packed, kept=recorded: kept.append(packed)
            stream.add(kinds)
            del stream.replay.add_rows
            replay.add_rows(recorded[0])
            resumed.add_rows(recorded[0])
        assert same(batches(resumed), batches(replay))
    assert equal(contents(resumed), contents(replay))


def test_contents_are_views_and_hold_only_the_slots_that_were_used():
    stream = played(2)
    state = stream.replay.mark().restore()
    assert state["rows"].shape == (2, 3, 6)
    assert state["rows"].data_ptr() == stream.replay._rows.data_ptr()


def test_windows_of_another_length_can_be_drawn_from_a_loaded_state():
    replay = played().replay
    other = make_replay(2, 6, n_step=1, gamma=0.25)
    other.load_state(contents(replay))
    assert len(other) == len(replay)
    assert {window.num_steps for window in every_window(other)} == {1}


def test_the_state_of_another_kind_of_generator_leaves_the_own_one_as_it_was_seeded():
    state = contents(played().replay)
    state["generator"] = {"device": "cuda", "state": torch.zeros(16, dtype=torch.uint8)}
    resumed, seeded = make_replay(2, 6, seed=5), make_replay(2, 6, seed=5)
    resumed.load_state(state)
    assert torch.equal(resumed._generator.get_state(), seeded._generator.get_state())
    assert len(resumed) == len(played().replay)


def test_qa_088_the_open_episode_is_not_glued_to_that_of_another_environment():
    stream = Stream(make_replay(1, 8, n_step=3), constant=True)
    stream.add(["go"])
    stream.interrupt()
    stream.add(["go"])
    assert [window.num_steps for window in every_window(stream.replay)] == [1, 1]


def change(**changes):
    return lambda state: state.update(changes)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda state: state.pop("codes"), r"lacks \['codes'\]"),
        (change(cods=1), "unknown entry 'cods'; did you mean 'codes'"),
        (change(version=2), "has version 2, this version reads 1"),
        (change(capacity=7), "capacity is 7, expected 6; it is of another run"),
        (change(num_envs=3), "num_envs is 3, expected 2"),
        (change(num_actions=3), "num_actions is 3, expected 2"),
        (
            change(groups={"critic": 1, "obs": 2}),
            "groups is {'critic': 1, 'obs': 2}, expected {'obs': 2, 'critic': 1}",
        ),
        (change(num_adds=-1), "num_adds is -1, expected a count"),
        (change(reached=True), "reached is True, expected a count"),
        (change(rows=[1]), "rows is a list, expected a tensor"),
        (change(rows=torch.zeros(2, 8, 6)), r"rows has shape \(2, 8, 6\), expected \(N, 1 to 7, columns\)"),
        (change(rows=torch.zeros(2, 7, 5)), r"rows has shape \(2, 7, 5\), expected \(2, 7, 6\)"),
        (change(rows=torch.zeros(2, 7)), r"rows has shape \(2, 7\), expected"),
        (change(codes=torch.zeros(2, 6, dtype=torch.uint8)), r"codes has shape \(2, 6\), expected \(2, 7\)"),
        (change(held=torch.zeros(2)), "held has dtype torch.float32, expected torch.bool"),
        (change(order=torch.full((2, 7), 7, dtype=torch.int32)), "contradict each other"),
        (change(order=torch.full((2, 7), -1, dtype=torch.int32)), "contradict each other"),
        (change(first=torch.tensor([-1, 0])), "contradict each other"),
        (change(pushed=torch.tensor([1000, 1000])), "contradict each other"),
        (change(position=torch.tensor([3, 3])), "contradict each other"),
        (change(generator={}), "generator is {}, expected 'device' and 'state'"),
        (
            change(generator={"device": "cpu", "state": [1]}),
            "generator's state is .* expected a uint8 tensor",
        ),
        (
            change(generator={"device": "cpu", "state": torch.zeros(3, dtype=torch.uint8)}),
            "generator's state can't be used",
        ),
    ],
)
def test_a_state_that_doesnt_fit_is_refused_and_changes_nothing(damage, message):
    state = contents(played().replay)
    damage(state)
    replay = played(4, seed=2).replay
    before = contents(replay)
    with pytest.raises(ValueError, match=f"replay state: .*{message}"):
        replay.load_state(state)
    assert equal(contents(replay), before)


def only_row(**changes):
    """Changes entries of row 0: `codes=(place, value)`."""

    def damage(state):
        for name, (place, value) in changes.items():
            state[name][0, place] = value

    return damage


def zeroed(state):
    state["codes"].zero_()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (zeroed, "slot 0 of row 0 has the code 0 and is 1 times among the stored ones; it is damaged"),
        (only_row(codes=(0, 2)), "slot 0 of row 0 has the code 2 and is 1 times"),
        (only_row(codes=(0, 9)), "codes go up to 9, expected 7 at most; it is damaged"),
        (only_row(codes=(3, 1)), "slot 3 of row 0 has the code 1 and is 0 times"),
        (only_row(codes=(3, 4)), "slot 3 of row 0 has the code 4 and is 0 times"),
        (only_row(order=(1, 0)), "slot 0 of row 0 has the code 1 and is 2 times"),
        (
            change(reached=5),
            "reached is 5, expected at most the 4 transitions that were stored; it is damaged",
        ),
        (change(num_adds=1), "num_adds is 1, but 2 steps of a row are stored; it is damaged"),
        (change(version=torch.zeros(2)), "has version tensor"),
        (change(capacity=torch.zeros(2)), "capacity is tensor.*, expected 6"),
    ],
)
def test_contents_that_contradict_each_other_are_refused_and_nothing_changes(damage, message):
    """Two rows, two steps each, in slots 0 and 1; the heads are at 2."""
    stream = Stream(make_replay(2, 6, n_step=3))
    for _ in range(2):
        stream.add(["go", "go"])
    stream.replay.sample(1)
    state = contents(stream.replay)
    # One slot more than was written, so that there is one that nothing names.
    for name in ("rows", "codes", "order"):
        state[name] = torch.cat([state[name], torch.zeros_like(state[name][:, :1])], dim=1)
    state["position"][1] = state["position"][1] + 1
    make_replay(2, 6).load_state(state)  # without damage it fits
    damage(state)
    replay = played(4, seed=2).replay
    before = contents(replay)
    with pytest.raises(ValueError, match=f"replay state: .*{message}"):
        replay.load_state(state)
    assert equal(contents(replay), before)


def test_nothing_was_reached_where_nothing_was_ever_stored():
    stream = Stream(make_replay(2, 6))
    stream.add(["refused", "refused"])
    state = contents(stream.replay)
    make_replay(2, 6).load_state(state)
    with pytest.raises(ValueError, match="reached is 1, expected at most the 0 transitions that were stored"):
        make_replay(2, 6).load_state(state | {"reached": 1})


def test_heads_of_a_row_that_lost_its_newest_transition_are_refused():
    state = contents(played(2).replay)
    state["first"][0], state["codes"][0] = state["pushed"][0], 0
    with pytest.raises(ValueError, match="heads, counts or slots contradict each other"):
        make_replay(2, 6).load_state(state)


def test_what_is_no_state_is_refused():
    with pytest.raises(ValueError, match="replay state: is a list, expected a dict"):
        make_replay().load_state([])


def test_saving_leaves_one_file_whatever_was_there(tmp_path):
    path = tmp_path / "replay.bin"
    path.write_text("old")
    first = save(played(4).replay, path)
    second = save(played().replay, path)
    assert first != second
    assert [each.name for each in tmp_path.iterdir()] == ["replay.bin"]
    load(make_replay(2, 6), path, second)


def test_large_tensors_are_written_in_pieces(tmp_path, monkeypatch):
    replay = played().replay
    whole = save(replay, tmp_path / "whole.bin")
    pieces = []
    bytes_of = replay_file._bytes_of
    monkeypatch.setattr(replay_file, "_bytes_of", lambda piece: pieces.append(piece) or bytes_of(piece))
    # Rows of 168 bytes, slots of 24: pieces of two rows or more, of a slot or more, and of less than a slot.
    for chunk in (400, 50, 20):
        monkeypatch.setattr(replay_file, "_CHUNK", chunk)
        pieces.clear()
        assert save(replay, tmp_path / "pieces.bin") == whole
        assert max(piece.numel() * piece.itemsize for piece in pieces) <= chunk
    other = make_replay(2, 6)
    load(other, tmp_path / "pieces.bin", whole)
    assert equal(contents(other), contents(replay))


def test_loading_leaves_the_file_as_it_is_and_the_replay_independent_of_it(tmp_path):
    path = tmp_path / "replay.bin"
    digest = save(played().replay, path)
    content = path.read_bytes()
    path.chmod(0o400)
    stream = played()
    load(stream.replay, path, digest)
    path.unlink()
    for kinds in SCRIPT:
        stream.add(kinds)
    stream.replay.sample(100)
    save(played().replay, path)
    assert path.read_bytes() == content
