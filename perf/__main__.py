"""`python -m perf`: runs the commands, or prints in one line which package is missing."""

import sys

OWN = ("perf", "kafkalite")
WRONG = 2


def run() -> None:
    """Run the command; a package that is not installed is one line with exit code 2."""
    try:
        from perf.commands import main

        main(prog_name="python -m perf")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in OWN:
            raise
        print(
            f"kafkalite: the harness needs the Python package {error.name.partition('.')[0]}: "
            "`make .venv/stamp-test` installs all that it needs",
            file=sys.stderr,
        )
        sys.exit(WRONG)


if __name__ == "__main__":
    run()
