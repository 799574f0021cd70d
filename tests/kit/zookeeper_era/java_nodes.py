"""The nodes that consumers of Kafka 0.8 to 1.1 write, kept as text in `golden/znodes.json`.

    python -m tests.kit.zookeeper_era.java_nodes        # writes them again; needs Java and Maven

ZooKeeper has a topic of three partitions and a broker that does not run: consumers join, and own the partitions.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

from tests.kit.zookeeper import start_zookeeper
from tests.kit.zookeeper_era.golden import DATA, VERSIONS
from tests.kit.zookeeper_era.processes import start_java
from tests.kit.zookeeper_era.tree import Tree, connected_tree

FILE = DATA / "znodes.json"
TOPIC, PARTITIONS, STREAMS = "a.b", 3, 2
CONSUMER = "host-1700000000000-0123abcd"
SUBSCRIPTIONS = {
    "static": ("static", TOPIC),
    "white": ("white", "a.b , c"),
    "black": ("black", '"c.*"'),
    "escaped": ("white", r"a\.b"),
}
BROKER = {
    "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
    "endpoints": ["PLAINTEXT://127.0.0.1:1"],
    "jmx_port": -1,
    "host": "127.0.0.1",
    "port": 1,
    "version": 4,
    "timestamp": "1700000000000",
}
Nodes = dict[str, str]


def java_nodes(version: str) -> dict[str, Nodes]:
    """The text of each node below the group, by subscription and path; the time is 0.

    Arguments:
        version: of Kafka.
    """
    kept: dict[str, dict[str, Nodes]] = json.loads(FILE.read_text())
    return kept[version]


def _prepare(tree: Tree) -> None:
    topic = {"version": 1, "partitions": {str(each): [1] for each in range(PARTITIONS)}}
    state = {"controller_epoch": 1, "leader": 1, "version": 1, "leader_epoch": 0, "isr": [1]}
    nodes: dict[str, object] = {"/brokers/ids/1": BROKER, f"/brokers/topics/{TOPIC}": topic}
    nodes |= {f"/brokers/topics/{TOPIC}/partitions/{each}/state": state for each in range(PARTITIONS)}
    for path, value in nodes.items():
        tree.client.create(path, json.dumps(value).encode(), makepath=True)


def _read(tree: Tree, path: str) -> Nodes:
    text = (tree.client.get(path)[0] or b"").decode()
    if '"timestamp"' in text:
        text = text.replace(json.loads(text)["timestamp"], "0")
    found = {path: text} if text else {}
    for name in sorted(tree.client.get_children(path)):
        found |= _read(tree, f"{path}/{name}")
    return found


async def _nodes_of(version: str, tree: Tree, zookeeper: str, folder: Path) -> dict[str, Nodes]:
    process, found = await start_java(folder / f"{version}.log", version), {}
    for name, (pattern, what) in SUBSCRIPTIONS.items():
        group = f"{name}-{version}"
        settings = {"group_id": group, "zookeeper_connect": zookeeper, "auto_commit_enable": False}
        member = process.begin_open(CONSUMER, pattern, what, STREAMS, **settings)
        await member.expect("opened")
        nodes = _read(tree, f"/consumers/{group}")
        found[name] = {path.replace(group, "GROUP"): text.replace(group, "GROUP") for path, text in nodes.items()}
        await member.close()
    await process.end()
    return found


def write() -> None:
    """Let consumers of all versions write their nodes, and keep them."""
    with tempfile.TemporaryDirectory() as name:
        zookeeper = start_zookeeper(Path(name))
        try:
            with connected_tree(zookeeper.address) as tree:
                _prepare(tree)
                kept = {each: asyncio.run(_nodes_of(each, tree, zookeeper.address, Path(name))) for each in VERSIONS}
        finally:
            zookeeper.kill()
    FILE.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    write()
