"""The build with AddressSanitizer, and processes that run on it."""

import fcntl
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "asan"
BUILD_COMMAND = "setup.py -q build --parallel 2 --build-lib build/asan --build-temp build/temp-asan"


@cache
def build() -> None:
    """Bring `build/asan` up to date, as `make asan` does; what has not changed is not compiled again."""
    shared = ("CYTHON_CACHE_DIR", "KAFKALITE_CC")  # no other build has the same output
    environ = {name: value for name, value in os.environ.items() if name not in shared} | {"KAFKALITE_ASAN": "1"}
    command = [sys.executable, *BUILD_COMMAND.split()]
    BUILD.parent.mkdir(exist_ok=True)
    with open(BUILD.parent / "asan.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test processes side by side would compile the same twice
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=1800)
    if done.returncode:
        raise RuntimeError(f"the sanitizer build failed:\n{done.stdout}\n{done.stderr}")


def environment() -> dict[str, str]:
    """What a process needs to run on the sanitizer build."""
    library = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    return {
        **os.environ,
        "KAFKALITE_ENGINE": "asan",
        # The interpreter itself is not instrumented: the library has to be there before it.
        "LD_PRELOAD": library.stdout.strip(),
        "PYTHONPATH": str(BUILD),
        "PYTHONSAFEPATH": "1",  # else the checkout, where the usual build is, comes first
        # pymalloc would put small objects side by side, where the sanitizer sees no bound.
        "PYTHONMALLOC": "malloc",
        # The interpreter never frees everything; an impossible size has to be a MemoryError as usual.
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def run(*arguments: str, timeout_s: float = 600) -> subprocess.CompletedProcess[str]:
    """Run Python with `arguments` on the sanitizer build; stderr comes with stdout."""
    command = [sys.executable, *arguments]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
    )
