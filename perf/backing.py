"""Memory that the hypervisor has backed, so that a turn measures a broker and not the machine below it.

In a virtual machine a page that was free for two seconds goes back to the host (free page reporting). The first touch
of it then costs up to ten microseconds, billed as the toucher's CPU time: 2.4 s for each GB of page cache that a
broker fills, or a tenth of that, by chance. A file written and deleted right before each turn leaves pages that cost
the same for every broker; anonymous memory does not, as files take their pages from other lists. On bare metal this
changes nothing.
"""

import os
import tempfile
from pathlib import Path

PIECE_BYTES = 1 << 20


def back_free_memory(size: int, directory: Path) -> None:
    """Fill the page cache with `size` bytes of a file in the directory, and give them back. Raises OSError."""
    piece = bytes(PIECE_BYTES)
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for position in range(0, size, PIECE_BYTES):
            os.pwrite(file.fileno(), piece, position)
