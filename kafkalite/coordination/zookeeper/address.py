"""Parses `zookeeper.connect`: several servers, and the path below which a cluster has its znodes.

parse_address("zk1:2181,[::1]/kafka") == Address((("zk1", 2181), ("::1", 2181)), "/kafka")
"""

import re
from typing import NamedTuple

from kafkalite.coordination.errors import BadArgumentsError
from kafkalite.coordination.tree import check_path
from kafkalite.model import shown_address

PORT = 2181
SERVER = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+(?:%\w+)?)\]|(?P<host>[^\s:\[\]]+))(?::(?P<port>[0-9]{1,5}))?")


class Address(NamedTuple):
    """The servers as (host, port), and the chroot, "" = none."""

    servers: tuple[tuple[str, int], ...]
    chroot: str


def parse_address(text: str) -> Address:
    """Return the servers and the chroot of "host:port,host:port/chroot"; the port is 2181 by default.

    Raises ValueError with a text that names the wrong part.
    """
    shown = shown_address(text)
    servers, slash, path = text.partition("/")
    chroot = slash + path if path else ""
    try:
        if chroot:
            check_path(chroot)
    except BadArgumentsError as error:
        raise ValueError(f'{shown}: "{chroot if chroot in shown else "/..."}" is not the path of a znode') from error
    return Address(tuple(_server(shown, each.strip()) for each in servers.split(",")), chroot)


def _server(shown: str, server: str) -> tuple[str, int]:
    parts = SERVER.fullmatch(server)
    if parts is None:
        part = f'"{server}"' if server in shown else "a server"  # it may be a part of a password
        raise ValueError(f"{shown}: {part} is not host:port")
    port = int(parts["port"] or PORT)
    if not 0 < port < 65536:
        raise ValueError(f"{shown}: the port of {server} is {port}, expected 1 to 65535")
    return parts["ipv6"] or parts["host"], port
