"""The priority of background threads: compaction and deletion run when the event loop has nothing to do."""

import logging
import os
import threading
from functools import lru_cache

NICE = 10
LOGGER = logging.getLogger("kafkalite.server.thread_priority")


def lower_thread_priority() -> None:
    """Lower the priority of this thread; never call it in a thread of the application.

    A priority that is lower already stays.

    The nice value alone is not enough: a thread that wakes up preempts the thread that woke it, here the loop, for
    about 3 ms. A SCHED_BATCH thread does not. A refusal by the system, as in some containers, is logged once. It is not
    an error of the disk, and the other call may be allowed.
    """
    thread = threading.get_native_id()
    for give_way in (_wake_behind, _go_last):
        try:
            give_way(thread)
        except OSError as error:
            log_rejected(str(error))


def _wake_behind(thread: int) -> None:
    if os.sched_getscheduler(thread) == os.SCHED_OTHER:
        os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))


def _go_last(thread: int) -> None:
    if os.getpriority(os.PRIO_PROCESS, thread) < NICE:
        os.setpriority(os.PRIO_PROCESS, thread, NICE)


@lru_cache(maxsize=8)
def log_rejected(reason: str) -> None:
    """Log a refused priority, once per reason."""
    LOGGER.warning("background threads (compaction, deletion) keep their normal priority: %s", reason)
