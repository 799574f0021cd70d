"""Prints the requirements for pip: `requirements.py build`, `run`, `dev FOREIGN.toml` or `spark FOREIGN.toml`.

`build` reads [build-system] of pyproject.toml; `run` the dependencies of the project; `dev` reads its `dev` extra,
and the pinned foreign clients from the table [clients] of the given file; `spark` reads the table [spark] of the file.
"""

import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads(Path("pyproject.toml").read_text())


def main(kind: str, *files: str) -> None:
    if kind == "build":
        lines = PROJECT["build-system"]["requires"]
    elif kind == "run":
        lines = PROJECT["project"]["dependencies"]
    else:
        lines = list(PROJECT["project"]["optional-dependencies"]["dev"]) if kind == "dev" else []
    for file in files:
        pins = tomllib.loads(Path(file).read_text())["clients" if kind == "dev" else kind]
        lines += [f"{name}=={version}" for name, version in pins.items()]
    print("\n".join(lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
