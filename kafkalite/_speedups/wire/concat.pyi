from collections.abc import Sequence

from typing_extensions import Buffer

def gathered(pieces: Sequence[Buffer]) -> bytes:
    """The bytes of all pieces, one after the other; one that is bytes alone is the answer itself.

    Much is copied without the interpreter's lock: nobody may change the pieces meanwhile.
    Raises: BufferError, TypeError for what has no contiguous bytes.
    """
