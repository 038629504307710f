"""The stream check sees a missing wait: shown on a backend that finishes its work only when somebody waits for it.

Needs torch and the packages; `nox -s gpu_check` has them.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("mujoco_warp")

from gpu_checks import streams  # noqa: E402
from gpu_checks.reporting import Report, read_findings  # noqa: E402


class Late:
    """A backend whose work is done when somebody waits, as a device's is."""

    def __init__(self, *, token_waits: bool = True) -> None:
        self.qpos = torch.zeros(4, 3)
        self.steps = 0
        self.token_waits = token_waits

    def get_state_views(self):
        return {"qpos": self.qpos}

    def step_tensor(self, ctrl, nsteps):
        self.steps += nsteps

    def finish(self, _report=None):
        self.qpos.fill_(float(self.steps))

    def completion(self):
        return self

    def wait_before_read(self, stream):
        if self.token_waits:
            self.finish()


@pytest.fixture
def report(tmp_path):
    return Report("cpu", dry=True, lines=tmp_path / "lines", folder=tmp_path)


@pytest.mark.parametrize(
    ("token_waits", "waits", "differs"), [(True, True, False), (True, False, True), (False, True, True)]
)
def test_a_read_differs_exactly_where_nothing_waits(report, monkeypatch, token_waits, waits, differs):
    backend = Late(token_waits=token_waits)
    monkeypatch.setattr(streams, "synchronize", backend.finish)
    found = streams._differs(report, backend, torch.zeros(4, 1), 2, None, waits=waits)
    assert found is differs


def test_a_check_that_never_saw_a_stale_read_fails_on_a_gpu(tmp_path):
    report = Report("cuda:0", dry=False, lines=tmp_path / "lines", folder=tmp_path)
    report.expect_on_gpu(False, "no stale read")
    assert read_findings(tmp_path / "lines").faults == ["no stale read"]
