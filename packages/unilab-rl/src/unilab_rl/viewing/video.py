"""Writes frames to a film."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from unilab_core import CapabilityError

if TYPE_CHECKING:
    import torch

__all__ = ["VideoWriter", "require_video"]


def require_video() -> None:
    """Does nothing where films can be encoded.

    Raises:
        CapabilityError: PyAV is not installed, or its FFmpeg has no H.264 encoder.
    """
    try:
        import av
        from av.codec.codec import UnknownCodecError
    except ImportError as error:
        raise CapabilityError('videos need PyAV: pip install "unilab-rl[video]>=2.0,<3"') from error
    try:
        av.Codec("h264", "w")
    except UnknownCodecError as error:
        raise CapabilityError(
            "videos need an H.264 encoder, which this FFmpeg lacks; the wheels of PyAV hold one: "
            "pip install --force-reinstall --only-binary av av"
        ) from error


class VideoWriter:
    """An H.264 film in an MP4 file; use as a context manager.

    Until it is left without an exception, `path` holds the old file or none: frames go to a temporary file beside it.

    Raises:
        CapabilityError: Films can't be encoded here.
        OSError: The place can't be written to.
    """

    def __init__(self, path: Path, *, frame_s: float) -> None:
        """Opens a film.

        Args:
            path: The file, with a name that ends in `.mp4`; its folder exists.
            frame_s: For how long each frame is shown, s.
        """
        require_video()
        import av

        self._path = path
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        # FFmpeg wants a fraction; 1 / 0.02 is not exactly 50, but the nearest simple fraction is.
        self._rate = Fraction(1.0 / frame_s).limit_denominator(1000)
        self._new_frame = av.VideoFrame.from_ndarray
        self._temporary.touch()  # FFmpeg itself would find only later that it can't
        try:
            self._film: Any = av.open(
                str(self._temporary), "w", format="mp4", options={"movflags": "+faststart"}
            )
        except BaseException:
            self._temporary.unlink()
            raise
        self._stream: Any = None

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            try:
                if kind is None and self._stream is not None:
                    self._film.mux(self._stream.encode(None))
            finally:
                self._film.close()
            if kind is None and self._stream is not None:
                os.replace(self._temporary, self._path)
        finally:
            self._temporary.unlink(missing_ok=True)

    def add(self, frame: torch.Tensor) -> None:
        """Appends a frame.

        Args:
            frame: (height, width, 3) uint8, as large as the first one; of an odd height or width, which the usual
                colour format can't hold, the last row or column is cut off.
        """
        height, width = frame.shape[0] // 2 * 2, frame.shape[1] // 2 * 2
        if self._stream is None:
            self._stream = self._film.add_stream("h264", rate=self._rate)
            self._stream.width, self._stream.height = width, height
            self._stream.pix_fmt = "yuv420p"  # the one that every browser shows
        pixels = frame[:height, :width].cpu().contiguous().numpy()
        self._film.mux(self._stream.encode(self._new_frame(pixels, format="rgb24")))
