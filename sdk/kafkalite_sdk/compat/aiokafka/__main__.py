"""Runs a program written for aiokafka on kafkalite's client: `python -m kafkalite_sdk.compat.aiokafka app:main`."""

import asyncio
import inspect
import runpy
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from kafkalite_sdk.compat.aiokafka.installation import install

USAGE = """\
usage: python -m kafkalite_sdk.compat.aiokafka FILE.py|MODULE[:FUNCTION] [ARGUMENTS ...]

Run a program in which `import aiokafka` loads kafkalite's client.

  python -m kafkalite_sdk.compat.aiokafka app.py           run app.py as `python app.py` does
  python -m kafkalite_sdk.compat.aiokafka app              run app.py as `python -m app` does
  python -m kafkalite_sdk.compat.aiokafka app:main         call main() of app.py, in an event loop if it is async
  python -m kafkalite_sdk.compat.aiokafka faststream run app:app
"""
EXPECTED = "pass FILE.py, MODULE or MODULE:FUNCTION of your program"


class ProgramError(Exception):
    """There is no such program; the text is for the user."""


def main(arguments: list[str]) -> int:
    """Run the program. Returns the exit code.

    Arguments:
        arguments: the file or module and function, then the arguments of the program.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0 if arguments else 2
    install()
    sys.argv = list(arguments)
    try:
        run(arguments[0])
    except ProgramError as error:
        print(f"error: {arguments[0]}: {error}; {EXPECTED}", file=sys.stderr)
        return 2
    return 0


def run(program: str) -> None:
    """Run a file, a module or a function; raises ProgramError if there is none of this name."""
    if program.endswith(".py"):
        run_file(program)
        return
    sys.path.insert(0, "")
    module_name, _, function_name = program.partition(":")
    if module_name.startswith(".") or not module_name:
        raise ProgramError("the name of a module does not begin with a dot" if module_name else "there is no module")
    if function_name:
        call(module_name, function_name)
    else:
        require_module(module_name)
        runpy.run_module(module_name, run_name="__main__", alter_sys=True)


def run_file(path: str) -> None:
    """Run a file as `python FILE` does: modules beside it can be imported."""
    if not Path(path).is_file():
        raise ProgramError("there is no such file")
    sys.path.insert(0, str(Path(path).resolve().parent))
    runpy.run_path(path, run_name="__main__")


def require_module(name: str) -> None:
    """Raise ProgramError unless the module can be run. Its parent packages are imported, the module is not."""
    try:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:  # a package is run by its __main__
            spec = find_spec(f"{name}.__main__")
    except (ModuleNotFoundError, ValueError) as error:
        if isinstance(error, ModuleNotFoundError) and not is_part(error.name, name):
            raise
        raise ProgramError(str(error)) from error
    if spec is None:
        raise ProgramError(f"No module named {name!r} that can be run")


def is_part(missing: str | None, name: str) -> bool:
    """Return whether the missing module is `name` or a package that contains it."""
    return missing is not None and f"{name}.".startswith(f"{missing}.")


def call(module_name: str, function_name: str) -> None:
    """Call a function of a module, in an event loop if it is async."""
    try:
        function = getattr(import_module(module_name), function_name)
    except (ModuleNotFoundError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and not is_part(error.name, module_name):
            raise
        raise ProgramError(str(error)) from error
    result = function()
    if inspect.iscoroutine(result):
        asyncio.run(result)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
