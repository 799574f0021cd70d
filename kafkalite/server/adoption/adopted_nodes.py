"""Converts those nodes of a broker that was alone which a cluster does not get as plain copies.

1. The producer ids begin above those in the log directory: another broker of the cluster may assign ids before this one
   starts and raises them (`TreeCounters`), and the journal may be an older copy.
2. Passwords without effect, which an earlier version has stored in configs of brokers, are left out: the tree of a
   cluster is in clear text, and other processes read it.
"""

import os
from typing import NamedTuple

from kafkalite._speedups.storage.file import Disk
from kafkalite.cluster.producer_id_blocks import raise_operation, raised_ids
from kafkalite.config.definitions import BROKER_KEYS, dynamic_key
from kafkalite.coordination import znodes
from kafkalite.coordination.tree import Create
from kafkalite.storage import names
from kafkalite.storage.recovery.largest_producer_id import largest_in_directories


class AdoptedNodes(NamedTuple):
    """The nodes that a cluster gets, and the passwords that it does not get: (path, key)."""

    nodes: list[Create]
    passwords: list[tuple[str, str]]


def adopted_nodes(nodes: list[Create], disk: Disk, data: str, broker_id: int) -> AdoptedNodes:
    """Return the nodes for the cluster; the result is the same for each attempt, as the broker is stopped.

    Arguments:
        nodes: those of the broker alone.
        disk: holds the log directory.
        data: the log directory.
        broker_id: of the broker.
    """
    found: list[Create] = []
    passwords: list[tuple[str, str]] = []
    for node in nodes:
        if node.path == znodes.PRODUCER_ID_BLOCK:
            node = node._replace(data=raise_block(node.data, largest_id_in(disk, data), broker_id))
        elif node.path.startswith(f"{znodes.BROKER_CONFIGS}/"):
            cleaned, keys = without_passwords(node)
            node = cleaned
            passwords += [(node.path, key) for key in keys]
        found.append(node)
    return AdoptedNodes(found, passwords)


def largest_id_in(disk: Disk, data: str) -> int:
    """The largest producer id in the partitions of a log directory, with its strays; -1 for none."""
    found = [name for name in disk.list(data) if is_of_partition(name)]
    return largest_in_directories(disk, [os.path.join(data, name) for name in found])


def is_of_partition(name: str) -> bool:
    """Whether a directory has the log of a partition, or of a stray."""
    return names.parse_directory_name(name) is not None or names.parse_stray_directory_name(name) is not None


def raise_block(data: bytes, found: int, broker_id: int) -> bytes:
    """The node of the producer ids above the ids in logs; unchanged if it is above them, or invalid."""
    try:
        ids = raised_ids(data, found, force=False)
    except znodes.ZnodeError:
        return data  # the start names it
    return data if ids is None else raise_operation(broker_id, ids, 0).data


def without_passwords(node: Create) -> tuple[Create, list[str]]:
    """A config node of brokers without passwords, and their keys. A node that is no JSON is unchanged."""
    try:
        texts = znodes.decode_configs(node.path, node.data)
    except znodes.ZnodeError:
        return node, []
    keys = [name for name in texts if is_password(name)]
    if not keys:
        return node, []
    return node._replace(data=znodes.encode_configs({n: text for n, text in texts.items() if n not in keys})), keys


def is_password(name: str) -> bool:
    """Whether a config of brokers is a password, also behind `listener.name.NAME.`."""
    key = dynamic_key(name) or BROKER_KEYS.get(name)
    return key is not None and key.sensitive
