"""Which episodes a reset has ended: known of the rows of the reset that goes on, worked out of any others."""

from __future__ import annotations

import torch

from unilab_core.ended_episodes import EndedEpisodes


def test_it_is_worked_out_of_the_lengths_of_the_last_episodes():
    lengths = torch.tensor([3, 0, 1, 0])
    ended = EndedEpisodes(lengths).of(torch.tensor([0, 1, 2]))
    assert ended.flags.tolist() == [True, False, True]
    assert ended.number.item() == 2
    assert ended.sum(torch.tensor([1.0, torch.nan, 4.0])).item() == 5.0
    assert ended.sum(torch.tensor([[1.0, 2.0], [8.0, torch.nan], [4.0, 16.0]])).tolist() == [5.0, 18.0]


def test_what_was_noted_is_known_of_those_very_rows_until_it_is_forgotten():
    lengths, ids = torch.zeros(4, dtype=torch.int64), torch.tensor([1, 2])
    episodes = EndedEpisodes(lengths)
    noted = episodes.note(ids, torch.tensor([0, 7]))
    assert noted.flags.tolist() == [False, True]
    assert episodes.of(ids) is noted
    assert episodes.of(ids.clone()).flags.tolist() == [False, False]  # as the lengths have it
    episodes.forget()
    assert episodes.of(ids).flags.tolist() == [False, False]
    lengths[1] = 5
    assert episodes.of(ids).flags.tolist() == [True, False]  # nothing was kept of the question before
