"""Cython classes declare each method that they leave to Python, and `cython_calls` detects one that is not declared."""

from pathlib import Path

import pytest

from tests.tidy.cython_calls import cython_files, undeclared_calls

ROOT = Path(__file__).resolve().parents[2]


def test_each_method_that_cython_calls_is_declared_by_a_cython_class() -> None:
    assert undeclared_calls(cython_files(ROOT)) == []


CORE = """
cdef class Core(Base):
    def flush(self):
        return self.DECLARED()

cdef class Driver:
    cdef Core core

    def run(self):
        cdef Core core = self.core
        core.flush()
"""


@pytest.mark.parametrize(
    ("base", "method"),
    [
        ("cdef class Base:\n    def written(self):\n        raise NotImplementedError\n", "written"),
        ("cdef class Base:\n    cdef int add(\n        self, int count,\n    ) except -1:\n        return 0\n", "add"),
        ("cdef class Base:\n    cdef public object on_end\n", "on_end"),
        ("cdef class Base:\n    async def wait(self):\n        return 0\n", "wait"),
    ],
)
def test_a_method_or_attribute_of_a_base_is_declared(base: str, method: str) -> None:
    assert undeclared_calls({"base.pyx": base, "core.pyx": CORE.replace("DECLARED", method)}) == []


BASE = "cdef class Base:\n    pass\n"


def test_a_call_of_a_method_that_only_a_python_subclass_has_is_detected() -> None:
    assert undeclared_calls({"a.pyx": BASE, "b.pyx": CORE.replace("DECLARED", "report")}) == ["Core.report"]


@pytest.mark.parametrize(
    "call",
    [
        "    def stop(self):\n        self.core.end(1)\n",
        "    def stop(self, Core core not None):\n        core.end(1)\n",
        "\ncdef int stop(Core core) except -1:\n    core.end(1)\n",
    ],
)
def test_a_call_of_another_object_is_detected(call: str) -> None:
    text = CORE.replace("DECLARED", "flush") + call
    assert undeclared_calls({"a.pyx": BASE, "b.pyx": text}) == ["Core.end"]
