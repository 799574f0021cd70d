"""CPU time and memory of a process as the kernel tells them."""

import os
import subprocess
import sys

from perf.process import cpu_seconds, machine, memory


def test_cpu_time_of_threads_that_ended_counts() -> None:
    spin = "import threading,time\n" \
        "def f():\n  end = time.thread_time() + 0.2\n  while time.thread_time() < end: pass\n" \
        "t = threading.Thread(target=f); t.start(); t.join(); print('done', flush=True); input()"  # fmt: skip
    with subprocess.Popen([sys.executable, "-c", spin], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        assert cpu_seconds(process.pid) >= 0.2
        process.communicate(b"\n")


def test_memory_at_its_highest_is_never_below_now() -> None:
    before = memory(os.getpid())
    block = bytearray(os.urandom(1)) * (64 << 20)
    after = memory(os.getpid())
    assert after.resident - before.resident > 32 << 20
    assert after.peak >= after.resident
    assert len(block) == 64 << 20


def test_the_machine_is_named() -> None:
    assert int(machine()["cores"]) >= 1
