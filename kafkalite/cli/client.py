"""What the client commands share: where the broker is, one connection for the length of a command, errors as one line.

A command ends with exit code 2 and one line that says what is wrong and what to do, never with a traceback.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import wraps
from typing import Any, NoReturn, ParamSpec

import click

from kafkalite.errors import KafkaError, KafkaErrorCode
from kafkalite.net.peer import Peer

DEFAULT_BOOTSTRAP = "localhost:9092"
CLIENT_ID = "kafkalite-cli"
EXIT_WRONG = 2

P = ParamSpec("P")

bootstrap_option = click.option(
    "-b",
    "--bootstrap",
    default=DEFAULT_BOOTSTRAP,
    show_default=True,
    envvar="KAFKALITE_BOOTSTRAP",
    metavar="HOST:PORT",
    help="A broker of the cluster.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")


def fail(text: str) -> NoReturn:
    """End the command with one line on standard error and exit code 2."""
    click.echo(f"kafkalite: {text}", err=True)
    sys.exit(EXIT_WRONG)


def parse_address(address: str) -> tuple[str, int]:
    """Split HOST:PORT ([::1]:9092 for IPv6); ends the command when it is neither."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit() or not 0 < int(port) < 65536:
        fail(f"{address!r} is no address; write HOST:PORT, for example {DEFAULT_BOOTSTRAP}")
    return host.strip("[]") or "localhost", int(port)


def connect(bootstrap: str) -> Peer:
    """A connection to the broker; open it with `async with`."""
    host, port = parse_address(bootstrap)
    return Peer(host, port, client_id=CLIENT_ID)


def command_runner(work: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Turn an async command into a plain one whose failures are one line."""

    @wraps(work)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            asyncio.run(work(*args, **kwargs))
        except KafkaError as error:
            fail(str(error))
        except OSError as error:
            fail(f"{error.strerror or error}; is a broker running there? `kafkalite serve` starts one")
        except KeyboardInterrupt:
            sys.exit(130)

    return run


def check(error_code: int, message: str | None, subject: str) -> None:
    """End the command when the broker answered with an error."""
    if error_code:
        code = KafkaErrorCode(error_code)
        fail(f"{subject}: {message or code.message} ({code.name})")


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[object]], as_json: bool) -> None:
    """Print a table for people, or one JSON object per row."""
    listed = [list(row) for row in rows]
    if as_json:
        for row in listed:
            click.echo(json.dumps(dict(zip(columns, row, strict=True))))
        return
    texts = [list(columns), *([str(cell) for cell in row] for row in listed)]
    widths = [max(len(row[at]) for row in texts) for at in range(len(columns))]
    for row in texts:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
