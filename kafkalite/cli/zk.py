"""`kafkalite zk`: reads the tree of ZooKeeper, or of any server of its protocol."""

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import click

from kafkalite.cli.client_options import (
    command_runner,
    json_option,
    print_rows,
    servers_timeout_option,
    zookeeper_config_option,
)
from kafkalite.cli.failure import fail
from kafkalite.cli.zk_reader import ZooKeeperReader, open_reader
from kafkalite.coordination.errors import BadArgumentsError, NoAuthError, NoNodeError
from kafkalite.coordination.tree import Stat, check_path

TREE_COLUMNS = ("PATH", "BYTES", "CHILDREN", "VERSION", "EPHEMERAL")
LIMIT = 1_000

connect_argument = click.argument("connect", metavar="SERVERS")


@click.group(
    epilog="""\b
Examples:
  kafkalite zk tree localhost:2181
  kafkalite zk tree zk1:2181,zk2:2181/kafka /brokers --depth 2
  kafkalite zk get localhost:2181 /brokers/ids/1
"""
)
def command() -> None:
    """Read the znodes of ZooKeeper. Nothing is changed."""


@command.command(
    epilog="""\b
Examples:
  kafkalite zk tree localhost:2181
  kafkalite zk tree zk1:2181,zk2:2181/kafka /config --depth 2
  kafkalite zk tree localhost:2181 /brokers --limit 20 --json
  kafkalite zk tree zk1:2182 --zookeeper-config server.properties
  kafkalite zk tree ./coordination
"""
)
@connect_argument
@click.argument("path", default="/")
@click.option("--depth", type=click.IntRange(min=0), metavar="N", help="Levels below PATH. Default: all.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=LIMIT, show_default=True, metavar="N", help="Most nodes to print."
)
@servers_timeout_option
@zookeeper_config_option
@json_option
@command_runner
async def tree(
    connect: str, path: str, depth: int | None, limit: int, timeout: float, config: str | None, as_json: bool
) -> None:
    """Print the nodes below PATH.

    SERVERS is written as in zookeeper.connect: HOST:PORT,HOST:PORT/CHROOT; or it is the directory that the brokers of
    this machine share. PATH is below the chroot. Nodes that may not be read are left out, with those below them.
    """
    root = valid(path)
    rows: list[tuple[object, ...]] = []
    unreadable: list[str] = []
    more = False
    async with open_reader(connect, timeout, config) as reader:
        async for node, stat in walk(reader, root, depth, unreadable):
            if len(rows) == limit:
                more = True
                break
            ephemeral = bool(stat.ephemeral_owner)
            shown = ephemeral if as_json else "yes" if ephemeral else "no"
            rows.append((node, stat.data_length, stat.num_children, stat.version, shown))
    print_rows(TREE_COLUMNS, rows, as_json)
    if more:
        click.echo(f"kafkalite: only the first {limit} nodes are printed; --limit prints more", err=True)
    if unreadable:
        click.echo(f"kafkalite: {len(unreadable)} node(s) are left out: no permission to read them", err=True)


async def walk(
    reader: ZooKeeperReader, root: str, depth: int | None, unreadable: list[str]
) -> AsyncIterator[tuple[str, Stat]]:
    """Yield nodes in the order of their paths, without those that are deleted meanwhile.

    Arguments:
        reader: of the tree.
        root: the first node.
        depth: levels below it, None = all.
        unreadable: the paths of nodes below `root` that may not be read are appended; they are left out.

    Raises CoordinationError, TimeoutError; also for lack of permission, and of no node, at `root`.
    """
    pending = [(root, 0)]
    while pending:
        path, level = pending.pop()
        try:
            names, stat = await reader.children(path)
        except (NoNodeError, NoAuthError) as error:
            if path == root:
                raise
            if isinstance(error, NoAuthError):
                unreadable.append(path)
            continue
        yield path, stat
        if depth is None or level < depth:
            pending += [(f"{path.rstrip('/')}/{name}", level + 1) for name in sorted(names, reverse=True)]


@command.command(
    epilog="""\b
Examples:
  kafkalite zk get localhost:2181 /brokers/ids/1
  kafkalite zk get zk1:2181/kafka /controller --json
"""
)
@connect_argument
@click.argument("path")
@servers_timeout_option
@zookeeper_config_option
@json_option
@command_runner
async def get(connect: str, path: str, timeout: float, config: str | None, as_json: bool) -> None:
    """Print the data and the metadata of the node PATH.

    SERVERS is written as in zookeeper.connect: HOST:PORT,HOST:PORT/CHROOT. PATH is below the chroot. With --json, data
    that is JSON is printed as such; bytes that are not UTF-8 are {"base64": "AAEC"}. Session and transaction ids are
    hexadecimal in the text.
    """
    node = valid(path)
    async with open_reader(connect, timeout, config) as reader:
        data, stat = await reader.get(node)
    if as_json:
        click.echo(json.dumps({"path": node, "data": json_value(data), "stat": stat._asdict()}))
        return
    click.echo(shown_text(data))
    for name, value in stat._asdict().items():
        click.echo(f"{name}: {value:#x}" if name.endswith(("zxid", "owner")) else f"{name}: {value}")


def valid(path: str) -> str:
    """Return the path of a node; ends the command if it is not valid."""
    cleaned = path.rstrip("/") or "/"
    try:
        check_path(cleaned)
    except BadArgumentsError:
        fail(f"{path!r} is not the path of a node; write it as /brokers/ids")
    return cleaned


def json_value(data: bytes) -> Any:
    """The data as JSON: its own value, a text, or bytes in base64; None without data."""
    if not data:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
    try:
        return json.loads(text)
    except ValueError:
        return text


def shown_text(data: bytes) -> str:
    """The data as text without control characters; bytes that are not UTF-8 are escaped."""
    text = data.decode(errors="backslashreplace")
    return "".join(map(shown_character, text))


def shown_character(character: str) -> str:
    """A character, escaped if it controls the terminal."""
    safe = character.isprintable() or character in "\n\t"
    return character if safe else character.encode("unicode_escape").decode()
