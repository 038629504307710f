"""No dead config field: changing any field that a task can have changes what the environment does."""

from __future__ import annotations

import pytest
from field_changes import BREAKS, CHANGES, Change
from field_support import everything, seen

from unilab_core import CapabilityError, ConfigError, make_env
from unilab_managers import ManagerBasedRlEnvCfg


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What is seen of the task with everything, unchanged; and seen again, for chance would prove everything."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("before"))
        shown = seen(everything())
        assert seen(everything()) == shown
    return shown


def _changed(change: Change) -> ManagerBasedRlEnvCfg:
    return change(everything()) if callable(change) else everything().with_(change)


@pytest.mark.parametrize("field", CHANGES)
def test_a_change_of_the_field_is_seen(field: str, before: str):
    assert seen(_changed(CHANGES[field])) != before


@pytest.mark.parametrize("field", BREAKS)
def test_a_change_of_the_field_leaves_terms_without_what_they_name(field: str):
    change, message = BREAKS[field]
    with pytest.raises((ConfigError, CapabilityError), match=message):
        make_env(_changed(change))
