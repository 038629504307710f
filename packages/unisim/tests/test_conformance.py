"""Every backend of this package keeps every promise of the contract."""

from __future__ import annotations

import pytest
from conforming import FakeHostSuite, FakeResidentSuite, MuJoCoSuite, MuJoCoWarpSuite


class TestMuJoCo(MuJoCoSuite):
    """The batch that keeps a workspace per row."""


class TestMuJoCoThatIsNotPersistent(MuJoCoSuite):
    """The batch whose workspaces are shared between rows."""

    persistent = False


@pytest.mark.timeout(600)  # a model whose kernels were never compiled takes minutes
class TestMuJoCoWarp(MuJoCoWarpSuite):
    """Every graph, kernel and view of the device-resident backend; UNISIM_WARP_DEVICE names a GPU to run it on."""


class TestFakeHostBridge(FakeHostSuite):
    """The fake in host memory."""


class TestFakeDeviceResident(FakeResidentSuite):
    """The fake that hands out its storage."""
