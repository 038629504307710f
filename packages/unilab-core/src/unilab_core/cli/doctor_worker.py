"""A process that makes checks for `unilab doctor`: one that crashes or hangs takes nothing else with it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from typing import IO, Any

from unisim.doctor import Finding
from unisim.import_strings import import_object

__all__ = ["Worker", "serve"]

_PROGRAM = f"from {__name__} import serve; serve()"
_START_S = 60.0
_TAIL = 300
"""Characters of a lost process's last line that are shown."""


class Worker:
    """One process that makes one check after the other; a lost one is started again for the next check.

    A context manager: the process ends with it.
    """

    def __init__(self, *, show_output: bool = False) -> None:
        """Starts nothing yet.

        Args:
            show_output: Whether what the checks write goes to this process's stderr; else it is kept, and the last
                line is shown of a process that was lost.
        """
        self._show_output = show_output
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._replies = -1
        self._buffer = b""

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def check(self, name: str, function: str, *, timeout_s: float, **arguments: Any) -> Finding:  # noqa: ANN401
        """Makes one check.

        Args:
            name: The name of the finding, whatever the check calls it.
            function: `"package.module:function"`; it returns a `Finding`.
            timeout_s: After that it counts as hanging, s.
            **arguments: Plain data, passed by name.

        Returns:
            What was found: that the check raised, crashed or hung, if it did.
        """
        if self._process is None:
            self._start()
            if self._reply(_START_S) is None:
                return self._lost(name, _START_S)
        request = json.dumps({"function": function, "arguments": arguments})
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, and so does its reply
            self._process.stdin.write(request.encode() + b"\n")
            self._process.stdin.flush()
        reply = self._reply(timeout_s)
        if reply is None:
            return self._lost(name, timeout_s)
        return Finding(**{**json.loads(reply), "name": name})

    def _start(self) -> None:
        self._replies, theirs = os.pipe()
        self._buffer = b""
        if not self._show_output:
            self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        try:
            self._process = subprocess.Popen(
                # -P: a file in the working directory must not stand in for an installed module.
                [sys.executable, "-P", "-c", _PROGRAM, str(theirs)],
                stdin=subprocess.PIPE,
                stdout=self._output or sys.__stderr__,
                stderr=self._output or sys.__stderr__,
                pass_fds=(theirs,),
                start_new_session=True,  # so that it ends together with processes of its own
            )
        finally:
            os.close(theirs)

    def _reply(self, timeout_s: float) -> bytes | None:
        """Returns one line of the process, or None: it ended, or the time is over."""
        end = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._replies], [], [], max(0.0, end - time.monotonic()))
            more = os.read(self._replies, 65536) if ready else b""
            if not more:
                return None
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _lost(self, name: str, timeout_s: float) -> Finding:
        """Ends the process and says what became of it."""
        process, output = self._process, self._output
        assert process is not None
        hung = False
        try:
            code = process.wait(1.0)  # a process that died closed its pipe a moment before
        except subprocess.TimeoutExpired:
            code, hung = 0, True
        last = _last_line(output) if output is not None else ""
        self._end()
        if hung:
            text = f"no answer after {timeout_s:g} s"
        else:
            text = f"its process ended with {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"
        return Finding(name, "broken", f"{text}: {last}" if last else text)

    def _end(self) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself, with all that it had started
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # of a request that was never read
            self._process.stdin.close()
        os.close(self._replies)
        if self._output is not None:
            self._output.close()
        self._process, self._output = None, None


def _last_line(output: IO[bytes]) -> str:
    output.seek(0)
    lines = [line.strip() for line in output.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1][:_TAIL] if lines else ""


def serve() -> None:
    """Makes the checks that come in, one JSON object a line, until there are no more; the process's main function."""
    with os.fdopen(int(sys.argv[1]), "w") as replies:
        replies.write("ready\n")
        replies.flush()
        for line in sys.stdin:
            request = json.loads(line)
            finding = _make(request["function"], request["arguments"])
            replies.write(json.dumps(asdict(finding)) + "\n")
            replies.flush()


def _make(function: str, arguments: dict[str, Any]) -> Finding:
    try:
        finding = import_object(function)(**arguments)
    except Exception as error:  # noqa: BLE001 - whatever a check raises is its finding
        return Finding(function, "broken", f"{type(error).__name__}: {error}")
    if not isinstance(finding, Finding):
        return Finding(
            function, "broken", f"the check returned a {type(finding).__name__}, expected a Finding"
        )
    return finding
