"""The `kafkalite` command: one entry point, one module per subcommand.

Laws: a subcommand's module is imported when that subcommand is called, never for `--help` or `--version`, so that
the command answers at once. Each module `kafkalite.cli.<name>` offers its click command (or group) as `command`.
What is wrong is said in one line on standard error, with exit code 2.
"""

import os
import sys
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from kafkalite._version import VERSION
from kafkalite.cli.failure import Failure
from kafkalite.cli.standard_streams import require_stdout, reserve_standard_fds

WITHOUT_OUTPUT = ("serve", "produce")  # what they print is no result: they run without standard output
INTERRUPTED = 130  # what a shell says of a process that SIGINT ended
OUTPUT_CLOSED = 141  # and of one that SIGPIPE ended; 1 would be the result of a check

# The subcommands in `kafkalite --help`; each module has the full text.
COMMANDS = {
    "serve": "Run a broker.",
    "topic": "Create, list, describe, alter and delete topics.",
    "group": "List, inspect, create, reset and delete consumer groups.",
    "produce": "Send lines or JSON objects from a file or a pipe to a topic.",
    "consume": "Print the records of a topic as lines or as JSON.",
    "log": "Inspect, verify and repair the files of partitions, offline.",
}
if (Path(__file__).parents[2] / "perf" / "__main__.py").is_file():  # the source checkout, not an installed package
    COMMANDS["perf"] = "Measure this broker and compare it with others."


class LazyGroup(click.Group):
    """A group that knows its subcommands by name and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = imported(cmd_name)
        if not isinstance(command, click.Command):
            raise TypeError(f"kafkalite.cli.{cmd_name}.command is a {type(command).__name__}, not a click command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, which would look for similar names among the commands that have been imported."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and (near := get_close_matches(name, COMMANDS)):
            ctx.fail(f"No such command {name!r}. Did you mean {near[0]!r}?")
        if name in COMMANDS and name not in WITHOUT_OUTPUT:
            require_stdout()
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """As click's, which ends with exit code 1 when the reader of the output is gone."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what is still buffered when the process ends
            sys.exit(OUTPUT_CLOSED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def main(self, *args: Any, **extra: Any) -> Any:
        """As click's, but what is wrong takes one line."""
        run: Any = super().main
        reserve_standard_fds()
        if not extra.get("standalone_mode", True):
            return run(*args, **extra)
        try:
            code = run(*args, **{**extra, "standalone_mode": False})
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(error.exit_code)
        except click.ClickException as error:
            click.echo(one_line(error), err=True)
            sys.exit(error.exit_code)
        except click.Abort:
            if sys.stderr.isatty():
                click.echo(err=True)  # the shell's prompt belongs below the ^C
            sys.exit(INTERRUPTED)
        sys.exit(code if isinstance(code, int) else 0)


def imported(name: str) -> object:
    """The command of this name. Says how to build the extensions where they are missing."""
    try:
        return import_module(f"kafkalite.cli.{name}").command
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("kafkalite._speedups."):
            raise
        raise Failure(f"the extension {error.name} is not built: run `make build` in the checkout") from error


def one_line(error: click.ClickException) -> str:
    """What went wrong, and for a wrong use where to read on."""
    said = " ".join(error.format_message().split())
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"kafkalite: {as_sentence(said)} See {error.ctx.command_path} --help."
    return f"kafkalite: {said}"


def as_sentence(said: str) -> str:
    """What click said, with one mark at its end, also where it asks back in brackets."""
    said = said.removesuffix(".")
    head, bracket, asked = said.rpartition(" (Did you mean ")
    if bracket:
        said = f"{head} Did you mean {asked.removesuffix(')')}"
    return said if said.endswith("?") else f"{said}."


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Every command has its own help: kafkalite COMMAND --help.",
)
@click.version_option(VERSION, message="%(prog)s %(version)s")
def main() -> None:
    """A Kafka-wire-compatible broker and its tools.

    \b
    Examples:
      kafkalite serve                            run a broker on localhost:9092, with its data in ./data
      kafkalite topic create orders              create a topic
      seq 10 | kafkalite produce orders          send ten records
      kafkalite consume orders --from-beginning -n 10
                                             print ten records
    """
