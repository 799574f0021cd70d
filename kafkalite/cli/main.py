"""The `kafkalite` command: one entry point, one module per subcommand.

Laws: a subcommand's module is imported when that subcommand is called, never for `--help` or `--version`, so that
the command answers at once. Each module `kafkalite.cli.<name>` offers its click command (or group) as `command`.
"""

from importlib import import_module

import click

from kafkalite._version import VERSION

# What `kafkalite --help` shows of each subcommand; the long text stands in its module.
COMMANDS = {
    "serve": "Run a broker.",
    "topic": "Create, list, describe, alter and delete topics.",
    "produce": "Send lines or JSON lines from a file or a pipe to a topic.",
    "consume": "Read a topic as lines or JSON.",
    "log": "Look into the files of a partition.",
    "perf": "Measure this broker, or compare it with others.",
}


class LazyGroup(click.Group):
    """A group that knows its subcommands by name and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"kafkalite.cli.{cmd_name}").command
        if not isinstance(command, click.Command):
            raise TypeError(f"kafkalite.cli.{cmd_name}.command is a {type(command).__name__}, not a click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Every command explains itself: kafkalite COMMAND --help.",
)
@click.version_option(VERSION, message="%(prog)s %(version)s")
def main() -> None:
    """A Kafka-wire-compatible broker, and the tools around it.

    \b
    Examples:
      kafkalite serve                            a broker on localhost:9092 that keeps its data in ./data
      kafkalite topic create orders              a topic
      seq 10 | kafkalite produce orders          ten records
      kafkalite consume orders --from-beginning -n 10
    """
