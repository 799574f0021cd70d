"""Runs the `kafkalite` command: `python -m kafkalite`."""

from kafkalite.cli.main import run

if __name__ == "__main__":
    run()
