"""Runs a program written for aiokafka on kafkalite's client: `python -m kafkalite_sdk.compat.aiokafka app:main`."""

import asyncio
import inspect
import runpy
import sys
from importlib import import_module

from kafkalite_sdk.compat.aiokafka.installation import install

USAGE = """\
usage: python -m kafkalite_sdk.compat.aiokafka MODULE[:FUNCTION] [ARGUMENTS ...]

Run a program in which `import aiokafka` loads kafkalite's client.

  python -m kafkalite_sdk.compat.aiokafka app:main         call main() of app.py, in an event loop if it is async
  python -m kafkalite_sdk.compat.aiokafka app              run app.py as `python -m app` does
  python -m kafkalite_sdk.compat.aiokafka faststream run app:app
"""


def main(arguments: list[str]) -> int:
    """Run the program. Returns the exit code.

    Arguments:
        arguments: the module and function, then the arguments of the program.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0 if arguments else 2
    module_name, _, function_name = arguments[0].partition(":")
    install()
    sys.path.insert(0, "")
    sys.argv = list(arguments)
    if not function_name:
        runpy.run_module(module_name, run_name="__main__", alter_sys=True)
        return 0
    try:
        function = getattr(import_module(module_name), function_name)
    except (ModuleNotFoundError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name != module_name:
            raise
        print(f"error: {arguments[0]}: {error}; pass MODULE:FUNCTION of your program", file=sys.stderr)
        return 2
    result = function()
    if inspect.iscoroutine(result):
        asyncio.run(result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
