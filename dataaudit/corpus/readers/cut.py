"""Cutting a large compressed file: at decoded offsets, each part decoding from the nearest member before it.

A file of many members (pzstd, bgzip, pbzip2, appended logs) costs little more in parts than whole. In a file of one
member every part decodes all that stands before it: n parts decode (n - 1) / 2 files more than one does. So there
are as many parts as keep this extra decoding below a quarter of the cost of scanning the file: 12 of zstd, 6 of
gzip, and one of xz and bzip2, which are hardly faster to decode than to scan.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from dataaudit.corpus.loss import ShardUnreadable
from dataaudit.corpus.readers.part import END, Part, Restart
from dataaudit.corpus.readers.stream import ByteStream
from dataaudit.corpus.shards import Compression

WHOLE = Part(0, END)
EXTRA_DECODING = 0.25
"""Cost of decoding again, at most, as a share of the cost of scanning."""
DECODING = {"zstd": 0.045, "gzip": 0.1, "xz": 0.3, "bzip2": 2.0}
"""Cost of decoding a byte / cost of scanning one; measured: 690, 310, 105 and 14 MB/s beside 31 MB/s."""
_SLOW = 0.25
"""From here on a file of one member is not worth a pass that only finds that out."""
_LOOK_BYTES = 64 << 20
_BLOCK_BYTES = 1 << 20


def plan_compressed(
    path: str, compression: Compression, size: int, part_bytes: int, on_stored: Callable[[bytes], None]
) -> list[Part]:
    """Decode a file once and cut it so that a part holds about ``part_bytes`` stored ones.

    A file that is damaged is one part: where it breaks off must not depend on how it is cut.

    Args:
        path: The file.
        compression: How it is compressed.
        size: Its stored bytes.
        part_bytes: Stored bytes of a part.
        on_stored: Gets every stored byte, damaged or not, in order.

    Raises:
        OSError: The file system fails.
    """
    with ByteStream(path, compression, on_stored=on_stored) as stream:
        try:
            while stream.read(_BLOCK_BYTES):
                one_member = len(stream.restarts) == 1 and stream.decoded_bytes > _LOOK_BYTES
                if one_member and DECODING[compression] > _SLOW:
                    return [WHOLE]
        except ShardUnreadable:
            return [WHOLE]
        finally:
            stream.drain()
        return _cut(stream.decoded_bytes, stream.restarts, -(-size // part_bytes), DECODING[compression])


def _cut(decoded: int, restarts: list[Restart], wanted: int, cost: float) -> list[Part]:
    """Return at most ``wanted`` parts of about the same size, fewer if reaching them costs too much."""
    number = min(wanted, max(1, decoded))
    offsets = [offset for _, offset in restarts]
    while number > 1:
        bounds = [decoded * index // number for index in range(number)]
        # A part looks at the byte before it, too.
        nearest = [restarts[max(0, bisect_right(offsets, start - 1) - 1)] for start in bounds]
        again = sum(max(0, start - offset) for start, (_, offset) in zip(bounds, nearest, strict=True))
        if again * cost <= EXTRA_DECODING * decoded:
            stops = [*bounds[1:], END]
            return [Part(*one) for one in zip(bounds, stops, nearest, strict=True)]
        number = number * 7 // 8 if number > 8 else number - 1
    return [WHOLE]
