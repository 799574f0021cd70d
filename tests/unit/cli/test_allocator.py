"""What `serve` asks of the allocator, seen by the page faults of a process of its own."""

import platform
import subprocess
import sys

import pytest

from tests.conftest import ENGINE

BUFFERS = 100
SIZE = 1 << 20
PROGRAM = f"""
import resource, sys, threading
from kafkalite._speedups.allocator import keep_freed
from kafkalite.cli.serve import KEPT_BYTES

def use():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range({BUFFERS}):
        bytearray({SIZE})
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

if sys.argv[1] == "keep":
    assert keep_freed(KEPT_BYTES, KEPT_BYTES)
else:
    keep_freed({SIZE // 2}, {SIZE // 2})
use()
thread = threading.Thread(target=use)
thread.start()
thread.join()
"""


def faults(how: str) -> list[int]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.split()]


@pytest.mark.skipif(ENGINE == "asan", reason="the sanitizer has an allocator of its own")
def test_a_buffer_that_was_freed_is_used_again() -> None:
    """In the main thread's heap and in another thread's; the other way round proves that faults are counted."""
    assert platform.libc_ver()[0] == "glibc"
    pages = SIZE // 4096
    assert all(count < 4 * pages for count in faults("keep"))
    assert all(count > BUFFERS * pages // 2 for count in faults("give back"))


HOLES = 40_000
FREED = f"""
import sys
from pathlib import Path
from kafkalite._speedups.allocator import give_back, keep_freed
from kafkalite.cli.serve import FREE_BYTES_MAX, KEPT_BYTES

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

keep_freed(KEPT_BYTES, KEPT_BYTES)
assert not give_back(FREE_BYTES_MAX), "nothing was freed yet"
blocks = [bytearray(4096) for _ in range({HOLES})]
del blocks[:-1]
before = resident()
print(before, give_back(FREE_BYTES_MAX), resident())
"""


@pytest.mark.skipif(ENGINE == "asan", reason="the sanitizer has an allocator of its own")
def test_freed_pages_below_a_block_in_use_return_to_the_kernel() -> None:
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    before, given, after = done.stdout.split()
    assert given == "True" and int(after) < int(before) - HOLES * 4096 // 2
