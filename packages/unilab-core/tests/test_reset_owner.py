"""The object that takes part in every reset."""

from __future__ import annotations

from unilab_core import ResetOwner


class Clip:
    def reset_transaction(self, env_ids):
        """Stages."""

    def reset_committed(self, env_ids):
        """Runs afterwards."""


class Half:
    def reset_transaction(self, env_ids):
        """Stages, and does not know of the commit."""


def test_an_owner_is_told_by_its_two_methods():
    assert isinstance(Clip(), ResetOwner)
    assert not isinstance(Half(), ResetOwner)
    assert not isinstance(object(), ResetOwner)
