"""Runs pip in the environment of the Python that runs this: `run_pip.py [--with-pip] install -r FILE`.

In an environment without pip (`python -m venv --without-pip`) it runs the pip of Python's own wheel; with `--with-pip`
the same run installs that pip, too. This takes a third of the time of `python -m venv`, which compiles all of pip.
"""

import ensurepip
import importlib.util
import subprocess
import sys
import sysconfig
from pathlib import Path

WITH_PIP = "--with-pip"


def bundled_wheel() -> Path:
    """Return the wheel of pip that comes with Python; Debian and Fedora have it in a directory of its own."""
    directories = [sysconfig.get_config_var("WHEEL_PKG_DIR"), Path(ensurepip.__file__).parent / "_bundled"]
    for directory in filter(None, directories):
        for wheel in Path(directory).glob("pip-*.whl"):
            return wheel
    sys.exit("Python's wheel of pip is missing: install python3-venv (Debian) or python3-pip (Fedora)")


def main(arguments: list[str]) -> int:
    pip = ["-m", "pip"]
    options = [argument for argument in arguments if argument != WITH_PIP]
    if importlib.util.find_spec("pip") is None:
        wheel = bundled_wheel()
        pip = [f"{wheel}/pip"]
        options += [str(wheel)] if WITH_PIP in arguments else []
    return subprocess.run([sys.executable, *pip, *options]).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
