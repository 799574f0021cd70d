"""Builds the Cython extensions; all metadata is in pyproject.toml.

Cython and the C compiler run in parallel, one process per core. The compiler's command lines and inputs are the same in
every checkout, apart from the directories of Python's headers, so that ccache works (`CC="ccache gcc"`).

Environment:
    KAFKALITE_DEBUG=1: bounds checks, assertions and line tables.
    KAFKALITE_ASAN=1: the same with AddressSanitizer and UBSan, and the module with a planted overflow.
    KAFKALITE_ONLY=decoder,index: only these modules; `none`: no module.
    KAFKALITE_CFLAGS=-O0: more options for the compiler (a test that builds the wheel compiles quickly).
    CYTHON_CACHE_DIR=directory: Cython keeps its output there, by the content of all that it depends on.
    KAFKALITE_CC="ccache gcc": the compiler of the extensions alone; CC is that of other programs, too.
    KAFKALITE_PERF=1: only the load generator of perf/, which is not shipped.
    KAFKALITE_PART=broker: only what a broker needs, without the modules of the SDK.

The debug and ASan builds have directories of their own (`make debug`, `make asan`); they are never built in place.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup

PERF = os.environ.get("KAFKALITE_PERF") == "1"
BROKER, SDK = Path("kafkalite/_speedups"), Path("sdk/kafkalite_sdk/_speedups")
PARTS = {"broker": [BROKER], "all": [BROKER, SDK]}
ROOTS = [Path("perf")] if PERF else PARTS[os.environ.get("KAFKALITE_PART", "all")]
ASAN = os.environ.get("KAFKALITE_ASAN") == "1"
DEBUG = ASAN or os.environ.get("KAFKALITE_DEBUG") == "1"
ONLY = {name for name in os.environ.get("KAFKALITE_ONLY", "").split(",") if name}
JOBS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

# -O3 takes a third more of the compiler's time than -O2; only these loops over records and batches gain from it.
# With -O2 the load generator reads a third fewer records per second than the broker serves.
LOOPS = {"validator", "batch_scan", "recovery_scan", "verify_batches", "encoder", "loadgen"}
# -O1 takes the compiler 60 % of the time of -O2. Reads of a log would need 3 % more instructions, loops over records up
# to 18 %, so their modules stay at -O2.
FEW_LOOPS = {
    "damaged_headers",
    "file_operations",
    "incremental_decoder",
    "sync_threads",
}
# The sanitizers find the same at -O0, which compiles in a quarter of the time.
COMPILE = [*(["-O0", "-g1"] if ASAN else ["-O1", "-g"]), "-UNDEBUG"] if DEBUG else ["-O2", "-g0"]
COMPILE.append("-Wno-unused-variable")  # Cython declares variables that only its compiled-out assertions use
MORE = os.environ.get("KAFKALITE_CFLAGS", "").split()
# Undefined behaviour ends the process too: otherwise its report is only a line of the output.
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"] if ASAN else []
# Checks as calls: less code to compile than checks in place, and the tests on this build are short.
SANITIZE += ["--param", "asan-instrumentation-with-call-threshold=0"] if ASAN else []
DIRECTIVES = {
    "language_level": "3",
    "binding": False,  # plain C functions: a quarter less for the C compiler, smaller modules
    "auto_pickle": False,
    "embedsignature": True,  # for stubtest
    "embedsignature.format": "clinic",
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "cdivision": True,
}


def extension(source: Path) -> Extension:
    optimize = [] if DEBUG else ["-O3"] if source.stem in LOOPS else ["-O1"] if source.stem in FEW_LOOPS else []
    return Extension(
        ".".join(source.with_suffix("").parts).removeprefix("tools.").removeprefix("sdk."),
        [str(source)],
        define_macros=[("KAFKALITE_DEBUG", "1")] if DEBUG else [("CYTHON_WITHOUT_ASSERTIONS", "1")],
        extra_compile_args=[*COMPILE, *optimize, "-fno-strict-aliasing", *MORE, *SANITIZE],
        extra_link_args=SANITIZE,
        depends=sorted(str(path) for root in ROOTS for path in root.rglob("*.pxd")),
    )


def extensions() -> list[Extension]:
    """Return the extensions to build, the largest first: a large one at the end would occupy one core alone."""
    sources = [path for root in ROOTS for path in root.rglob("*.pyx") if not ONLY or path.stem in ONLY]
    wanted = [extension(path) for path in sorted(sources, key=lambda path: (-path.stat().st_size, path))]
    return [*wanted, extension(Path("tools/planted_overflow.pyx"))] if ASAN else wanted


def in_c(modules: list[Extension]) -> list[Extension]:
    """Translate the extensions to C. Cython is imported only if there are any: it takes half a second."""
    if not modules:
        return []
    from Cython.Build import cythonize

    build_dir = "build/cython-asan" if ASAN else "build/cython-debug" if DEBUG else "build/cython"
    options = {"build_dir": build_dir, "compiler_directives": DIRECTIVES, "include_path": [".", "sdk"]}
    options["cache"] = "CYTHON_CACHE_DIR" in os.environ
    return cythonize(modules, nthreads=JOBS, quiet=True, **options)


def lock_in_place() -> None:
    """Wait while another process compiles in place, as `make run` does beside the broker."""
    import fcntl

    Path("build").mkdir(exist_ok=True)
    fcntl.flock(os.open("build/in-place.lock", os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)


if compiler := os.environ.get("KAFKALITE_CC"):
    os.environ["CC"] = compiler
if __name__ == "__main__":  # not in the processes of `cythonize` where they start by importing this module
    if "--inplace" in sys.argv:
        lock_in_place()
    setup(ext_modules=in_c(extensions()), options={"build_ext": {"parallel": JOBS}})
