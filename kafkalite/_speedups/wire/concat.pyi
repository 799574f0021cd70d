from collections.abc import Sequence

from typing_extensions import Buffer

def gathered(pieces: Sequence[Buffer]) -> bytes:
    """Concatenate the pieces; a single bytes object is returned unchanged.

    Large copies release the GIL: no other thread may change the pieces meanwhile.
    Raises: BufferError, TypeError for an object without contiguous bytes.
    """
