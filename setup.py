"""Builds the Cython extensions; everything else stands in pyproject.toml.

Environment: KAFKALITE_DEBUG=1 turns on bounds checks, assertions and line tables;
KAFKALITE_ASAN=1 adds AddressSanitizer and UBSan to that, and the module with a planted overflow;
KAFKALITE_ONLY=codec,index builds just these modules (a developer's short cut; `none` builds none).
The variants go to directories of their own (`make debug`, `make asan`), never in place.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

ROOT = "kafkalite/_speedups"
ASAN = os.environ.get("KAFKALITE_ASAN") == "1"
DEBUG = ASAN or os.environ.get("KAFKALITE_DEBUG") == "1"
ONLY = {name for name in os.environ.get("KAFKALITE_ONLY", "").split(",") if name}

COMPILE = ["-O1", "-g", "-UNDEBUG"] if DEBUG else ["-O3", "-g0"]
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


def extension(name: str, source: str) -> Extension:
    return Extension(
        name,
        [source],
        include_dirs=[ROOT],
        define_macros=[("KAFKALITE_DEBUG", "1")] if DEBUG else [("CYTHON_WITHOUT_ASSERTIONS", "1")],
        extra_compile_args=[*COMPILE, "-fno-strict-aliasing", *SANITIZE],
        extra_link_args=SANITIZE,
        depends=sorted(map(str, [*Path(ROOT).glob("*.pxd"), *Path(ROOT).glob("*.h")])),
    )


def extensions() -> list[Extension]:
    names = sorted(path.stem for path in Path(ROOT).glob("*.pyx"))
    wanted = [
        extension(f"kafkalite._speedups.{name}", f"{ROOT}/{name}.pyx") for name in names if not ONLY or name in ONLY
    ]
    return [*wanted, extension("planted_overflow", "tools/planted_overflow.pyx")] if ASAN else wanted


build_dir = "build/cython-asan" if ASAN else "build/cython-debug" if DEBUG else "build/cython"
setup(ext_modules=cythonize(extensions(), build_dir=build_dir, compiler_directives=DIRECTIVES))
