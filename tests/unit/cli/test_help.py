"""What `--help` shows of every command: examples, and options in them that exist."""

import shlex
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from kafkalite.cli.main import COMMANDS, main

HARNESS = "perf"  # explains itself: it is not ours to parse
ELSEWHERE = ("|", ">", "2>", "<", "#")


def commands(path: tuple[str, ...], command: click.Command) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """A command and all below it."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            if (*path, name) != (HARNESS,):
                yield from commands((*path, name), below)


EVERY = list(commands((), main))
IDS = [" ".join(path) or "kafkalite" for path, _ in EVERY]


def examples(path: tuple[str, ...]) -> list[list[str]]:
    """The calls of kafkalite that the help of a command shows, as a shell would split them."""
    shown = CliRunner().invoke(main, [*path, "--help"], terminal_width=200)
    assert shown.exit_code == 0
    _, heading, text = shown.output.partition("Examples:\n")
    assert heading, f"no examples:\n{shown.output}"
    calls = []
    for line in text.splitlines():
        call = line.partition("kafkalite ")[2].partition("   ")[0]  # what follows many spaces explains
        if call and (not line.startswith("  Every")):
            words = shlex.split(call)
            calls.append(words[: min((at for at, word in enumerate(words) if word in ELSEWHERE), default=len(words))])
    return calls


def parse(call: list[str]) -> None:
    """Raises click.UsageError for options and commands that do not exist."""
    command: click.Command = main
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), call[0])
        assert found is not None, f"{call[0]} is no command"
        command, call = found, call[1:]
    context = click.Context(command)
    command.make_parser(context).parse_args(list(call))


@pytest.mark.parametrize(("path", "command"), EVERY, ids=IDS)
def test_the_examples_of_every_command_can_be_called(path: tuple[str, ...], command: click.Command) -> None:
    calls = examples(path)
    assert calls
    for call in calls:
        parse(call)
    if not isinstance(command, click.Group):
        assert all(call[: len(path)] == list(path) for call in calls[:1]), "the first example is of another command"


def test_an_example_with_an_option_that_does_not_exist_is_found() -> None:
    with pytest.raises(click.UsageError, match="--partition-count"):
        parse(["topic", "create", "orders", "--partition-count", "3"])


def test_command_summaries_are_not_truncated() -> None:
    for path, command in EVERY:
        if isinstance(command, click.Group):
            shown = CliRunner().invoke(main, [*path, "--help"]).output
            assert "..." not in shown.partition("Commands:")[2].partition("Examples:")[0], shown
    assert COMMANDS


def test_the_format_of_an_example_ends_the_line() -> None:
    """Copied from the help, the text reaches the command as it is shown."""
    calls = [call for path, _ in EVERY for call in examples(path) if "--format" in call]
    assert calls
    for call in calls:
        text = call[call.index("--format") + 1]
        assert text.endswith("\\n") and not text.endswith("\\\\n"), text
