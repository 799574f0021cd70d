"""Classifies errors of disk calls: transient, or a reason to take the log directory offline.

1. An error is transient if the disk has lost nothing: no space, no quota, no descriptors. The failed call is undone,
   its caller receives an error, the next call tries again.
2. Every other error takes the log directory offline. A failed fsync or truncation does so for any reason.
3. EMFILE and ENFILE are errors of open() only, never of fsync or ftruncate: an attempt fails, not the log directory.
"""

import errno

NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
TRANSIENT = NO_DESCRIPTORS | {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM}


def is_transient(error: OSError) -> bool:
    """Whether the directory stays usable after this error."""
    return error.errno in TRANSIENT


def lacks_descriptors(error: BaseException | None) -> bool:
    """Whether a call failed because the process or the system has no free file descriptor (EMFILE, ENFILE)."""
    return isinstance(error, OSError) and error.errno in NO_DESCRIPTORS
