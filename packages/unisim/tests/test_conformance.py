"""Every backend of this package keeps every promise of the contract."""

from __future__ import annotations

from conforming import FakeHostSuite, FakeResidentSuite, MuJoCoSuite


class TestMuJoCo(MuJoCoSuite):
    """The batch that keeps a workspace per row."""


class TestMuJoCoThatIsNotPersistent(MuJoCoSuite):
    """The batch whose workspaces are shared between rows."""

    persistent = False


class TestFakeHostBridge(FakeHostSuite):
    """The fake in host memory."""


class TestFakeDeviceResident(FakeResidentSuite):
    """The fake that hands out its storage."""
