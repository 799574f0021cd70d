"""What the kernel knows about a process: CPU time of all its threads, memory."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

CPUCLOCK_SCHED = 2  # include/linux/posix-timers.h
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Memory:
    """Resident memory in bytes: now and at its highest."""

    resident: int
    peak: int


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads, those that ended included, in nanoseconds of resolution.

    Raises OSError for a process that has ended. Source: clock_getcpuclockid of glibc, which Python does not have.
    """
    return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)


def tree_cpu_seconds(root: int | None = None) -> float:
    """User and system time of a process (None = this one) and all its descendants, those that ended included.

    A process that ends counts for the one that has waited for it. Resolution: a clock tick for each process.
    """
    pid, stats = os.getpid() if root is None else root, process_stats()
    ticks = (sum(map(int, stats[each][11:15])) for each in [pid, *_descendants(pid, stats)] if each in stats)
    return sum(ticks) / TICKS


def descendants(root: int) -> list[int]:
    """The ids of the children of a process and of their children, parents first."""
    return _descendants(root, process_stats())


def process_stats() -> dict[int, list[str]]:
    """The fields of /proc/PID/stat of all processes, by process id, from the state on."""
    found: dict[int, list[str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            stat = path.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        found[int(path.parent.name)] = stat[stat.rindex(")") + 2 :].split()
    return found


def _descendants(root: int, stats: dict[int, list[str]]) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, fields in stats.items():
        children.setdefault(int(fields[1]), []).append(pid)
    found = [root]
    for pid in found:
        found += children.get(pid, ())
    return found[1:]


def memory(pid: int) -> Memory:
    """VmRSS and VmHWM of the process."""
    kib = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key in ("VmRSS", "VmHWM"):
            kib[key] = int(value.split()[0])
    return Memory(kib["VmRSS"] * 1024, kib["VmHWM"] * 1024)


def machine() -> dict[str, str]:
    """What a reader needs to judge figures: processor, cores, memory, kernel."""
    cpu = [line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory_kib = next(int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal"))
    return {
        "processor": cpu[0] if cpu else os.uname().machine,
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory_kib / 2**20:.0f} GiB",
        "kernel": f"{os.uname().sysname} {os.uname().release}",
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()
