"""Memory that the hypervisor has backed, so that a turn measures a broker and not the machine below it.

In a virtual machine a page that was free for a while goes back to the host (free page reporting). The first touch of
it then costs several microseconds, billed as the toucher's CPU time: up to two thirds of a broker's CPU while it fills
the page cache, much or little of it by chance. Touching as much memory right before each turn, and giving it
back, leaves pages that cost the same for every broker. On bare metal this changes nothing.
"""

import mmap

MADV_POPULATE_WRITE = 23


def back_free_memory(size: int) -> None:
    """Touch `size` bytes of free memory and free them again. Raises OSError where there is not so much."""
    with mmap.mmap(-1, size) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        memory.madvise(MADV_POPULATE_WRITE)
