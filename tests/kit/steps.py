"""Raises an exception in each step of an operation; the steps are found by running it, so that none can be forgotten.

A step is a line with a call, in the source files that the test names, in the order of its first execution. The
exception is raised instead of the call.
"""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]


class Bug(Exception):
    """What is raised in a step."""


class Step(NamedTuple):
    """A line of a source file, and the function that it belongs to."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.function})"


@cache
def lines_with_calls(file: str, *, awaits: bool = False) -> dict[int, str]:
    """The lines within functions of a source file on which a call begins, with the name of the function.

    Arguments:
        file: path below the root of the project.
        awaits: the lines within coroutine functions on which an await begins, instead.
    """
    found: dict[int, str] = {}
    functions: type[ast.AST] = ast.AsyncFunctionDef if awaits else ast.FunctionDef
    steps = ast.Await | ast.AsyncWith | ast.AsyncFor if awaits else ast.Call

    def visit(node: ast.AST, names: tuple[str, ...], inside: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, steps) and inside:
                found.setdefault(child.lineno, ".".join(names))
            if isinstance(child, (functions, ast.ClassDef)):
                visit(child, (*names, child.name), inside or isinstance(child, functions))
            else:
                visit(child, names, inside)

    visit(ast.parse((ROOT / file).read_text()), (), inside=False)
    return found


class Stepper:
    """Finds the steps of an operation, and raises in one of them.

    Arguments:
        sources: beginnings of the paths of source files, below the root of the project.
        without: (file, function) whose calls are no steps.
        awaits: the steps are the awaits of coroutine functions instead of the calls of other functions.
        threads: threads that the operation starts are traced, too.
    """

    def __init__(
        self,
        sources: tuple[str, ...],
        without: frozenset[tuple[str, str]] = frozenset(),
        *,
        awaits: bool = False,
        threads: bool = False,
    ) -> None:
        unknown = [each for each in without if each[1] not in lines_with_calls(each[0], awaits=awaits).values()]
        assert not unknown, f"renamed or without a call: {unknown}"
        self._awaits = awaits
        self._threads = threads
        self._prefixes = tuple(str(ROOT / source) for source in sources)
        self._without = without
        self._steps: dict[str, dict[int, Step]] = {}  # by path and line, of the files that were executed
        self._codes: dict[int, tuple[CodeType, bool]] = {}  # by identity: whether a frame of the code is traced
        self._found: dict[Step, None] = {}
        self._fails_at: Step | None = None
        self._left = 0
        self.raised = False

    @contextmanager
    def found(self) -> Iterator[list[Step]]:
        """Collect the steps of what is run; the list is complete at the end."""
        steps: list[Step] = []
        with self._traced(None):
            yield steps
        steps += self._found

    @contextmanager
    def fails_at(self, step: Step, after: int = 0) -> Iterator[None]:
        """Raise a Bug in the next execution of a step, or `after` so many more."""
        with self._traced(step):
            self._left = after
            yield

    @contextmanager
    def _traced(self, step: Step | None) -> Iterator[None]:
        self._found, self._fails_at, self._left, self.raised = {}, step, 0, False
        self._codes.clear()
        before, of_threads = sys.gettrace(), threading.gettrace()
        assert threading.current_thread() is threading.main_thread(), "threads that run already are not traced"
        sys.settrace(self._called)
        if self._threads:
            threading.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)
            threading.settrace(of_threads)  # type: ignore[arg-type]  # None = no function

    def _called(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        code = frame.f_code
        known = self._codes.get(id(code))
        if known is None:
            known = self._codes[id(code)] = code, self._is_traced(code)
        return self._line if known[1] else None

    def _is_traced(self, code: CodeType) -> bool:
        """Whether the code has a step that is looked for: a call of a trace function for each other line is in vain."""
        steps = self._steps_of(code.co_filename)
        found = [steps[line] for _, _, line in code.co_lines() if line in steps]
        return bool(found) if self._fails_at is None else self._fails_at in found

    def _steps_of(self, path: str) -> dict[int, Step]:
        """The steps of a source file by line; those of other files are none."""
        steps = self._steps.get(path)
        if steps is None:
            steps = self._steps[path] = {}
            if path.startswith(self._prefixes):
                file = str(Path(path).relative_to(ROOT))
                for line, function in lines_with_calls(file, awaits=self._awaits).items():
                    if (file, function) not in self._without:
                        steps[line] = Step(file, line, function)
        return steps

    def _line(self, frame: FrameType, event: str, _argument: Any) -> Any:
        step = self._steps_of(frame.f_code.co_filename).get(frame.f_lineno) if event == "line" else None
        if step is None:
            return self._line
        if self._fails_at is None:
            self._found[step] = None
        elif self._fails_at == step and not self.raised:
            self._left -= 1
            if self._left < 0:
                self.raised = True
                raise Bug(str(step))
        return self._line
