"""The broker takes time, random numbers, threads, disk and sockets from its ports alone."""

import re
from pathlib import Path

import kafkalite

PACKAGE = Path(kafkalite.__file__).parent
PACKAGES = ("server", "cluster", "coordinators", "coordination", "storage", "state")
CREATED = re.compile(
    r"\b(time\.(time|time_ns|monotonic|monotonic_ns|perf_counter|sleep)\(|os\.urandom\(|import random\b|uuid\.uuid4\(|"
    r"Thread\(|ThreadPoolExecutor\(|socket\.socket\(|LoopClock\(|SystemRandom\(|ThreadOffload\(|Disk\(\)|Listener\()"
)
KNOWN = {
    "server/resources.py: Disk()",  # of a broker without a disk in its ports
    "server/sd_notify.py: socket.socket(",  # used by `serve` alone
    "storage/recovery/load_logs.py: ThreadPoolExecutor(",  # joined within the call
    "storage/recovery/load_logs.py: time.monotonic(",  # for a log line
}


def test_broker_creates_no_clock_random_thread_disk_or_socket() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}: {match[0]}"
        for package in PACKAGES
        for path in (PACKAGE / package).rglob("*.py")
        for line in path.read_text().splitlines()
        if not line.lstrip().startswith(("class ", "#"))
        for match in CREATED.finditer(line)
        if "def " not in line
    }
    assert found == KNOWN
