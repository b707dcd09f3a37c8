"""Reads a graph file as a stream: decompresses it within limits, decodes it, and unifies line ends.

This module is independent of graph formats.  Text is read in blocks of whole, numbered lines, so that a reader never
holds the whole file; binary files are provided as a local path.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import re
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from storage.errors import InvalidGraph, NotFound
from storage.files.zstd import zstd
from storage.readers.limits import ReadLimits
from storage.readers.spool import temporary_copy

#: Number of bytes of text that are parsed at a time: enough for the column parser to be fast, and little compared with
#: a large graph.
BLOCK = 2 << 20
#: Maximum length of a line, in bytes: enough for a vertex of a METIS file with some twenty million neighbours.
LINE = 256 << 20
#: Number of bytes that are read to recognise the format.
HEAD = 64 << 10
#: Maximum number of bytes that are read of a first line longer than ``HEAD``: it may hold the names of all columns.
FIRST_LINE = 1 << 20
#: Number of compressed bytes that are passed to zstd at a time.
_ZSTD_STEP = 64 << 10
#: Number of decompressed bytes that zstd returns at a time.  Four compressed bytes may expand to 128 KiB, so only this
#: limit bounds the memory that a decompression bomb takes.
_ZSTD_PIECE = 1 << 20
#: The largest window that a zstd frame may ask for, as an exponent of two: 2^27 bytes are 128 MiB.
_ZSTD_WINDOW = 27
#: The line ``sep=;`` with which a CSV file may begin, to name the separator for Excel.
_SEPARATOR = re.compile(rb"\A\"?sep=([;,|\t])\"?[ ;,|\t]*+(?=\n)", re.IGNORECASE)
_MAGIC = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
_SUFFIX = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


@dataclass(frozen=True)
class Block:
    """Whole lines of text, each ending in a line feed; ``line`` is the number of the first line."""

    data: bytes
    line: int


class Source:
    """A file to read a graph from.

    Attributes:
        path: the file.
        limits: limits on the decompressed size and the compression ratio.
        compression: None, ``gzip`` or ``zstd``, recognised by content.
        size: size of the file in bytes, before decompression.
    """

    def __init__(self, path: str | Path, limits: ReadLimits) -> None:
        """Examine the file.  Raises NotFound if there is none, InvalidGraph if it is empty, or if its content
        contradicts the ending of its name.
        """
        self.path = Path(path)
        self.limits = limits
        try:
            with self.path.open("rb") as file:
                start = file.read(4)
            self.size = self.path.stat().st_size
        except OSError as error:
            raise NotFound(f"cannot open {self.path}: {error.strerror or error}") from error
        self.compression = next((name for name, magic in _MAGIC.items() if start.startswith(magic)), None)
        promised = _SUFFIX.get(self.path.suffix.lower())
        if not start:
            raise InvalidGraph("the file is empty")
        if promised is not None and self.compression != promised:
            raise InvalidGraph(f"the name {self.path.name} promises {promised}, but the content is not {promised}")
        if self.compression is None:
            limits.check_bytes(self.size, None)

    @property
    def suffix(self) -> str:
        """The extension of the file name in lower case, ignoring an extension of the compression: ``.gr`` for
        ``NY.gr.gz``.
        """
        path = self.path.with_suffix("") if self.path.suffix.lower() in _SUFFIX else self.path
        return path.suffix.lower()

    def content(self) -> Generator[bytes, None, None]:
        """Yield the decompressed bytes in pieces.

        Raises InvalidGraph for a damaged or truncated stream, LimitExceeded as soon as a limit is exceeded.
        """
        total = 0
        pieces = {None: self._plain, "gzip": self._gunzip, "zstd": self._unzstd}[self.compression]()
        try:
            for piece in pieces:
                total += len(piece)
                self.limits.check_bytes(total, None if self.compression is None else self.size)
                yield piece
        except EOFError:
            raise InvalidGraph(f"the {self.compression} stream is cut off after {total:,} bytes of content") from None
        except (gzip.BadGzipFile, zlib.error, zstd.ZstdError) as error:
            raise InvalidGraph(f"the {self.compression} stream is damaged: {error}") from None
        except OSError as error:
            raise NotFound(f"cannot read {self.path}: {error.strerror or error}") from error

    def _plain(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            while piece := file.read(BLOCK):
                yield piece

    def _gunzip(self) -> Iterator[bytes]:
        with gzip.open(self.path) as file:
            while piece := file.read(1 << 20):
                yield piece

    def _unzstd(self) -> Iterator[bytes]:
        options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW}
        frame, fed = zstd.ZstdDecompressor(options=options), False
        with self.path.open("rb") as file:
            while raw := file.read(_ZSTD_STEP):
                while raw or not (frame.needs_input or frame.eof):
                    if frame.eof:
                        frame, fed = zstd.ZstdDecompressor(options=options), False
                    fed = True
                    if piece := frame.decompress(raw, _ZSTD_PIECE):
                        yield piece
                    raw = frame.unused_data if frame.eof else b""
        if fed and not frame.eof:
            raise EOFError

    @cached_property
    def start(self) -> bytes:
        """Return the first bytes undecoded, to recognise binary formats."""
        with contextlib.closing(self.content()) as pieces:
            return next(iter(pieces), b"")[:HEAD]

    @cached_property
    def head(self) -> list[str]:
        """Return the first lines of the text, at most ``HEAD`` bytes, to recognise the format; an incomplete last line
        is left out.

        If the first line is longer, its first ``FIRST_LINE`` bytes are returned, and ``head_is_cut`` says whether it
        continues.
        """
        return self._beginning[0]

    @cached_property
    def separator(self) -> str | None:
        """Return the separator that a first line such as ``sep=;`` names, as spreadsheets write it; None without such a
        line.  All other methods hide this line.
        """
        with contextlib.closing(_one_line_end(_decode(self._sized(HEAD)))) as pieces:
            found = _SEPARATOR.match(next(pieces, b""))
        return found[1].decode() if found else None

    def _text_pieces(self, size: int) -> Generator[bytes, None, None]:
        """Yield the text with unified line ends, and an empty line instead of ``sep=;``."""
        with contextlib.closing(_one_line_end(_decode(self._sized(size)))) as pieces:
            yield _SEPARATOR.sub(b"", next(pieces, b""), 1)
            yield from pieces

    @property
    def head_is_cut(self) -> bool:
        """Return whether ``head`` has only the beginning of a first line of more than ``FIRST_LINE`` bytes."""
        return self._beginning[1]

    @cached_property
    def _beginning(self) -> tuple[list[str], bool]:
        held, length, more = [b""], 0, False
        with contextlib.closing(self._text_pieces(HEAD)) as pieces:
            for piece in pieces:
                held.append(piece)
                length += len(piece)
                more = length >= HEAD and (b"\n" in piece or length >= FIRST_LINE)
                if more:
                    break
        data = b"".join(held)
        if data and not more and not data.endswith(b"\n"):
            data += b"\n"
        cut = data.rfind(b"\n", 0, HEAD) + 1 or data.find(b"\n", 0, FIRST_LINE) + 1
        if b"\0" in data[: cut or FIRST_LINE]:
            raise _nul(1 + data.count(b"\n", 0, data.index(b"\0")))
        lines = data[: cut or FIRST_LINE].decode("utf-8", "replace").split("\n")
        return lines[:-1] if cut or not data else lines, bool(data) and not cut

    def blocks(self, size: int | None = None) -> Generator[Block, None, None]:
        """Yield the text in blocks of whole lines, about ``size`` bytes each: UTF-8 without byte order mark, lines
        ended by LF.

        Raises InvalidGraph naming the line of a NUL byte or of text that is not valid UTF-16.
        """
        line = 1
        held: list[bytes] = []  # the pieces of an unfinished line; they are joined once, so that this takes linear time
        for piece, last in _flag_last(self._text_pieces(size or BLOCK)):
            if b"\0" in piece:
                raise _nul(line + piece.count(b"\n", 0, piece.index(b"\0")))
            cut = len(piece) if last else piece.rfind(b"\n") + 1
            if cut or last:
                data = b"".join([*held, piece[:cut]])
                if last and data and not data.endswith(b"\n"):
                    data += b"\n"
                if data:
                    yield Block(data, line)
                    line += data.count(b"\n")
                held.clear()
            held.append(piece[cut:])
            if sum(map(len, held)) > LINE:
                raise InvalidGraph(f"a line of more than {LINE >> 20} MiB: this is no text", line=line)

    def text(self) -> Iterator[str]:
        """Yield the text in pieces, for formats in which lines mean nothing and may be as long as the file.

        Raises InvalidGraph for text that is not valid UTF-8, or, with a byte order mark of UTF-16, not valid UTF-16.
        """
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            for piece in _decode(self._sized(HEAD)):
                for at in range(0, len(piece), HEAD):
                    yield decoder.decode(piece[at : at + HEAD])
            yield decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            raise InvalidGraph(f"not valid UTF-8: {error.reason}") from None

    def body(self, skip: int) -> Iterator[Block]:
        """Yield the text in blocks like ``blocks``, but without the first ``skip`` lines."""
        for block in self.blocks():
            if block.line > skip:
                yield block
            elif block.line + block.data.count(b"\n") > skip:
                rest = block.data.split(b"\n", skip - block.line + 1)[-1]
                yield Block(rest, skip + 1)

    def pieces(self) -> Iterator[bytes]:
        """Yield ``content`` in pieces of about ``BLOCK`` bytes, even if decompression returns small pieces."""
        return self._sized(BLOCK)

    def _sized(self, size: int) -> Generator[bytes, None, None]:
        """Yield the content in pieces of about ``size`` bytes.  With large pieces, few lines are divided between two
        pieces.
        """
        held: list[bytes] = []
        length = 0
        for piece in self.content():
            held.append(piece)
            length += len(piece)
            if length >= size:
                yield held[0] if len(held) == 1 else b"".join(held)
                held, length = [], 0
        if held:
            yield b"".join(held)

    @contextlib.contextmanager
    def local(self) -> Iterator[Path]:
        """Context manager: provide the path of a file with the decompressed content, which may be a temporary file."""
        if self.compression is None:
            yield self.path
            return
        with temporary_copy(self.content(), self.suffix) as path:
            yield path


def _nul(line: int) -> InvalidGraph:
    return InvalidGraph("a NUL byte: this is not text, or it is damaged", line=line)


def _decode(pieces: Iterator[bytes]) -> Generator[bytes, None, None]:
    """Yield UTF-8 without its byte order mark; decode UTF-16, which is recognised by its mark.  Bytes that are not
    valid UTF-8 are passed on unchanged, because comments may be Latin-1.
    """
    first = next(pieces, b"")
    mark = next((m for m in _MARKS if first.startswith(m)), b"")
    first = first[len(mark) :]
    if _MARKS.get(mark, "utf-8") == "utf-8":
        yield first
        yield from pieces
        return
    decoder = codecs.getincrementaldecoder(_MARKS[mark])()
    lines = 1
    try:
        text = decoder.decode(first)
        for piece in pieces:
            yield text.encode()
            lines += text.count("\n")
            text = decoder.decode(piece)
        yield (text + decoder.decode(b"", final=True)).encode()
    except UnicodeError as error:
        raise InvalidGraph(f"not valid UTF-16 (near line {lines}): {error}") from None


def _one_line_end(pieces: Iterator[bytes]) -> Generator[bytes, None, None]:
    """Replace CR LF and CR by LF, also if a piece ends between CR and LF."""
    held = b""
    for piece in pieces:
        data = held + piece if held else piece
        held = b""
        if b"\r" in data:
            if data.endswith(b"\r"):
                data, held = data[:-1], b"\r"
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        yield data
    if held:
        yield b"\n"


def _flag_last(pieces: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    previous = next(pieces, None)
    if previous is None:
        return
    for piece in pieces:
        yield previous, False
        previous = piece
    yield previous, True
