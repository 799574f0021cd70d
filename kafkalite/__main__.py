"""`python -m kafkalite` is the same as the `kafkalite` command."""

from kafkalite.cli.main import main

if __name__ == "__main__":
    main(prog_name="kafkalite")
