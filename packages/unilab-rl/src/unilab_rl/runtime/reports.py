"""What the process of a collector says to the learner's, in pieces that are there whole or not at all."""

from __future__ import annotations

import pickle
import select
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from unilab_rl.tally import TallyTotals

__all__ = ["Failure", "Inbox", "Report", "send"]

_HEADER_BYTES = 4
"""What `Connection.send_bytes` puts before a short message."""

_MARK_BYTES = 1
_PIECE_BYTES = select.PIPE_BUF - _HEADER_BYTES - _MARK_BYTES
"""Of a message in one piece: POSIX writes up to PIPE_BUF bytes to a pipe at once, so that no reader finds a half."""

_MORE, _LAST = b"\0", b"\1"


@dataclass(frozen=True)
class Report:
    """What is said before the step that ends an iteration is handed over."""

    steps: int
    """Vector steps since the process began."""

    totals: TallyTotals
    """Of the steps since the last report."""

    state: dict[str, Any]
    """As `Collector.state` returned it after that step."""


@dataclass(frozen=True)
class Failure:
    """An exception that ended the process."""

    error: str
    """Its type and message."""

    traceback: str


def send(pipe: Connection, message: Report | Failure, beat: Callable[[], None]) -> None:
    """Sends a message in pieces, each of which the other end receives without waiting.

    `Connection.send` would send a tensor as a handle, which nobody can open once its process is dead; and a process
    that is stopped in the middle of one long message would hold whoever began to receive it.

    Args:
        pipe: The writing end of a pipe, not of a socket.
        message: What to send.
        beat: Called before each piece.
    """
    data = pickle.dumps(message)
    for start in range(0, len(data), _PIECE_BYTES):
        beat()
        mark = _LAST if start + _PIECE_BYTES >= len(data) else _MORE
        pipe.send_bytes(mark + data[start : start + _PIECE_BYTES])


class Inbox:
    """Puts together what `send` sent; there may be only one for a pipe."""

    def __init__(self, pipe: Connection) -> None:
        """Makes the inbox of the reading end of a pipe."""
        self._pipe = pipe
        self._pieces: list[bytes] = []

    def take(self) -> Report | Failure | None:
        """Returns the next message, or `None` where it is not complete yet; never waits.

        Raises:
            EOFError: The other end is closed, and everything that was complete has been taken.
        """
        while self._pipe.poll():
            piece = self._pipe.recv_bytes()
            self._pieces.append(piece[_MARK_BYTES:])
            if piece[:_MARK_BYTES] == _LAST:
                message = pickle.loads(b"".join(self._pieces))
                self._pieces = []
                assert isinstance(message, Report | Failure)
                return message
        return None
