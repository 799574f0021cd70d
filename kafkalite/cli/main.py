"""Defines the `kafkalite` command, with one module per subcommand.

1. The module of a subcommand is imported when the subcommand is called, never for `--help` or `--version`.
2. Each module `kafkalite.cli.<name>` has its click command (or group) as `command`.
3. An error is one line on standard error, with exit code 2.
"""

import gc
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from kafkalite._version import VERSION
from kafkalite.cli.failure import Failure
from kafkalite.cli.standard_streams import require_stdout, reserve_standard_fds

WITHOUT_OUTPUT = ("serve", "produce")  # their output is not a result: they run without standard output
INTERRUPTED = 130  # exit code that a shell reports for a process ended by SIGINT
EXTENSIONS = ("kafkalite._speedups.", "kafkalite_sdk._speedups.")
OUTPUT_CLOSED = 141  # and for a process ended by SIGPIPE; 1 would be the result of a check

# The subcommands in `kafkalite --help`; each module has the full text.
COMMANDS = {
    "serve": "Run a broker.",
    "topic": "Create, list, describe, alter and delete topics.",
    "config": "Show and change the settings of brokers, topics and groups.",
    "cluster": "Run a cluster of this machine; show the state of a cluster.",
    "zk": "Read the znodes of ZooKeeper.",
    "group": "List, inspect, create, reset and delete consumer groups.",
    "acl": "List, add, remove and check ACLs.",
    "user": "List, add and remove users with SCRAM credentials.",
    "security": "Create certificates and a super user; report weak settings.",
    "token": "Create, list, renew and expire delegation tokens.",
    "quota": "List, add and remove client quotas.",
    "transaction": "List, describe, abort and terminate transactions.",
    "produce": "Send lines or JSON objects from a file or a pipe to a topic.",
    "consume": "Print the records of a topic as lines or as JSON.",
    "pipeline": "Copy topics to tables, aggregate and verify them with Spark.",
    "log": "Inspect, verify and repair the files of partitions, offline.",
}
if (Path(__file__).parents[2] / "perf" / "__main__.py").is_file():  # the source checkout, not an installed package
    COMMANDS["perf"] = "Measure this broker and compare it with others."


class LazyGroup(click.Group):
    """A group that lists its subcommands by name and imports the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_command(cmd_name)
        if not isinstance(command, click.Command):
            raise TypeError(f"kafkalite.cli.{cmd_name}.command is a {type(command).__name__}, not a click command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve as click does, but search for similar names in all commands; click searches the imported ones."""
        name = args[0]
        if name in COMMANDS:
            if name not in WITHOUT_OUTPUT:
                require_stdout()
        elif not name.startswith("-"):
            from difflib import get_close_matches

            if near := get_close_matches(name, COMMANDS):
                ctx.fail(f"No such command {name!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command as click does; if the reader of the output ended, exit with OUTPUT_CLOSED instead of 1.

        Raises: Failure with the next step if an extension is not built; `make run` builds those of the SDK last.
        """
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith(EXTENSIONS):
                raise
            raise Failure(f"the extension {error.name} is not built (yet): run `make build` in the checkout") from error
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for output that is still buffered at the exit
            sys.exit(OUTPUT_CLOSED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run as click does, but report errors in one line."""
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


def import_command(name: str) -> object:
    """Return the command of this name."""
    try:
        return import_module(f"kafkalite.cli.{name}").command
    finally:
        if not gc.isenabled():  # `run` disabled it
            gc.freeze()
            gc.enable()


def one_line(error: click.ClickException) -> str:
    """Return the message of an error, with a pointer to the help if the command was used wrongly."""
    text = " ".join(error.format_message().split())
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"kafkalite: {as_sentence(text)} See {error.ctx.command_path} --help."
    return f"kafkalite: {text}"


def as_sentence(text: str) -> str:
    """Return click's message with one mark at its end, also if it ends with a question in brackets."""
    text = text.removesuffix(".")
    head, bracket, asked = text.rpartition(" (Did you mean ")
    if bracket:
        text = f"{head} Did you mean {asked.removesuffix(')')}"
    return text if text.endswith("?") else f"{text}."


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


def run() -> None:
    """Run the command as the process of its own that it is; imports leave no garbage, so they run without collections.

    A collection walks all objects that were imported so far: together a tenth of the CPU time of a start.
    """
    gc.disable()
    main(prog_name="kafkalite")
