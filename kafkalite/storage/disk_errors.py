"""What a failed call to the disk means: wait for better times, or trust the directory no more.

Laws:
1. Transient is what goes away without the disk having lost anything: no space, no quota, no descriptors. The call that
   failed is taken back, its user gets an error, the next one tries again.
2. Everything else takes the log directory offline, and so do a failed sync and a failed cut, whatever their reason.
3. EMFILE and ENFILE come from open() only, never from fsync or ftruncate: they fail one attempt, never the directory.
"""

import errno

NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
TRANSIENT = NO_DESCRIPTORS | {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM}


def is_transient(error: OSError) -> bool:
    """Whether the directory can be used on."""
    return error.errno in TRANSIENT


def lacks_descriptors(error: BaseException | None) -> bool:
    """Whether a call failed because the process or the system has no free file descriptor (EMFILE, ENFILE)."""
    return isinstance(error, OSError) and error.errno in NO_DESCRIPTORS
