"""Divides rows into pieces that fit into the buffer of a producer. Needs pyarrow."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow

TABLE_BYTES = 4 << 20


def pieces(batch: "pyarrow.RecordBatch") -> Iterator["pyarrow.RecordBatch"]:
    """Yield the rows of a batch in order, in pieces that fit into the buffer of the producer.

    A piece has at most TABLE_BYTES, or one row at most: rows may differ much in size.
    """
    pending = [batch]
    while pending:
        piece = pending.pop()
        if piece.nbytes <= TABLE_BYTES or piece.num_rows <= 1:
            yield piece
        else:
            middle = piece.num_rows // 2
            pending += [piece.slice(middle), piece.slice(0, middle)]
