"""Apache ZooKeeper's transaction log as the judge of the controllers: the writes of one controller in each epoch.

The log has every accepted write with the session that made it, in order. Apache ZooKeeper's own tool prints it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.kit import jvm

TOOL = "org.apache.zookeeper.server.persistence.TxnLogToolkit"
HEADER = re.compile(r"^.{0,60} session (0x[0-9a-f]+) cxid 0x[0-9a-f]+ zxid (0x[0-9a-f]+) (\w+) ?", re.MULTILINE)
# In a multi: the name of the operation, the size of the path in four bytes, and the path.
OPERATION = re.compile(r"(check|create2?|setData|delete):.{4}(/[\w./-]+)", re.DOTALL)
EPOCH = "/controller_epoch"
PARTITIONS = re.compile(r"/brokers/topics/[^/]+/partitions")


class Write(NamedTuple):
    """An accepted multi.

    Attributes:
        zxid: its number.
        session: id of the session that made it.
        operations: the name and the path of each operation, without the path of the cluster.
    """

    zxid: int
    session: str
    operations: list[tuple[str, str]]


def multis(data: Path, chroot: str) -> list[Write]:
    """All multis of the logs in ZooKeeper's data directory. Raises CalledProcessError if the tool fails."""
    found = []
    for log in data.glob("log.*"):
        done = jvm.run_tool(jvm.PREVIOUS, TOOL, ["-d", str(log)])
        done.check_returncode()
        found += parse(done.stdout, chroot)
    return sorted(found)


def parse(text: str, chroot: str) -> Iterable[Write]:
    """The multis in the output of the tool."""
    headers = list(HEADER.finditer(text))
    ends = [*(each.start() for each in headers[1:]), len(text)]
    for header, end in zip(headers, ends, strict=True):
        if header[3] == "multi":
            operations = OPERATION.findall(text, header.end(), end)
            yield Write(int(header[2], 16), header[1], [(name, path.removeprefix(chroot)) for name, path in operations])


def foreign_writes(writes: Iterable[Write]) -> tuple[int, int, list[Write]]:
    """The number of epochs, of writes of their controllers, and the writes that were not made by the controller of the
    epoch, or not fenced by it."""
    epochs, count, wrong = 0, 0, []
    controller = ""
    for write in writes:
        if ("setData", EPOCH) in write.operations:
            epochs += 1
            controller = write.session
        elif ("check", EPOCH) in write.operations or any(PARTITIONS.match(path) for _, path in write.operations):
            count += 1
            if write.session != controller or ("check", EPOCH) not in write.operations:
                wrong.append(write)
    return epochs, count, wrong
