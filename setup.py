"""Builds the Cython extensions; everything else stands in pyproject.toml.

Environment: KAFKALITE_DEBUG=1 turns on bounds checks, assertions and line tables;
KAFKALITE_ASAN=1 adds AddressSanitizer and UBSan to that, and the module with a planted overflow;
KAFKALITE_ONLY=codec,index builds just these modules (a developer's short cut; `none` builds none);
KAFKALITE_CFLAGS=-O0 adds options of the compiler (a test that builds the wheel compiles quickly);
KAFKALITE_PERF=1 builds the load generator of perf/ instead, which is not shipped.
The variants go to directories of their own (`make debug`, `make asan`), never in place.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

PERF = os.environ.get("KAFKALITE_PERF") == "1"
ROOT = Path("perf" if PERF else "kafkalite/_speedups")
ASAN = os.environ.get("KAFKALITE_ASAN") == "1"
DEBUG = ASAN or os.environ.get("KAFKALITE_DEBUG") == "1"
ONLY = {name for name in os.environ.get("KAFKALITE_ONLY", "").split(",") if name}

# The sanitizers find the same at -O0, which compiles in a quarter of the time.
COMPILE = ["-O0" if ASAN else "-O1", "-g", "-UNDEBUG"] if DEBUG else ["-O3", "-g0"]
COMPILE += os.environ.get("KAFKALITE_CFLAGS", "").split()
COMPILE.append("-Wno-unused-variable")  # Cython declares what only its compiled-out assertions use
# Undefined behaviour ends the process too: a report that only scrolls by is no test.
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"] if ASAN else []
DIRECTIVES = {
    "language_level": "3",
    "embedsignature": False,
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "cdivision": True,
}


def extension(source: Path) -> Extension:
    return Extension(
        ".".join(source.with_suffix("").parts).removeprefix("tools."),
        [str(source)],
        define_macros=[("KAFKALITE_DEBUG", "1")] if DEBUG else [("CYTHON_WITHOUT_ASSERTIONS", "1")],
        extra_compile_args=[*COMPILE, "-fno-strict-aliasing", *SANITIZE],
        extra_link_args=SANITIZE,
        depends=sorted(map(str, ROOT.rglob("*.pxd"))),
    )


def extensions() -> list[Extension]:
    wanted = [extension(path) for path in sorted(ROOT.rglob("*.pyx")) if not ONLY or path.stem in ONLY]
    return [*wanted, extension(Path("tools/planted_overflow.pyx"))] if ASAN else wanted


build_dir = "build/cython-asan" if ASAN else "build/cython-debug" if DEBUG else "build/cython"
setup(ext_modules=cythonize(extensions(), build_dir=build_dir, compiler_directives=DIRECTIVES))
