"""Writes the credentials of a user into a tree without a broker: the first user of a cluster, whose brokers need it."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from kafkalite._speedups.storage.file import Disk
from kafkalite.cli.cluster.tree_session import tree_session
from kafkalite.cli.failure import fail
from kafkalite.cli.zk_reader import IN_CONFIG, access_of
from kafkalite.clock import LoopClock, Outcome, Then, await_outcome
from kafkalite.cluster.changes import Refusal, RefusedError
from kafkalite.cluster.configs.client_quotas import entity_of
from kafkalite.cluster.configs.quota_writes import QuotaChange
from kafkalite.cluster.credentials.texts import encode_credential
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.bulk_reads import ensure_nodes
from kafkalite.coordination.embedded import EmbeddedCoordination
from kafkalite.coordination.errors import CoordinationError
from kafkalite.coordination.journal import JournalError
from kafkalite.coordination.zookeeper.access_files import explain
from kafkalite.errors import KafkaErrorCode
from kafkalite.net.sasl.scram import make_credential
from kafkalite.server.process.resources import JOURNAL
from kafkalite.storage.dirs.log_directory import DirectoryError, LogDirectory


class Tree(NamedTuple):
    """Where the tree is.

    Attributes:
        zookeeper: as in zookeeper.connect, or None.
        coordination: the directory that the brokers of this machine share, or None.
        data: the first log directory of a broker that is alone and does not run, or None.
        config: a file with the settings that secure the session with ZooKeeper, None = none.
        timeout_s: how long the servers are tried.
    """

    zookeeper: str | None
    coordination: str | None
    data: str | None
    config: str | None
    timeout_s: float

    @property
    def name(self) -> str:
        """What the user has given."""
        return self.zookeeper or self.coordination or self.data or ""


async def add_user(tree: Tree, user: str, password: str, mechanisms: tuple[str, ...], iterations: int) -> None:
    """Store credentials; ends the command with the reason if that is not possible.

    Arguments:
        tree: where.
        user, password: the user.
        mechanisms: of SCRAM; those that the user has already are replaced, others stay.
        iterations: 4,096 to 16,384.
    """
    credentials = {each: make_credential(each, password, iterations=iterations) for each in mechanisms}
    texts = {each: encode_credential(credential) for each, credential in credentials.items()}
    access = access_of(tree.config)
    try:
        if tree.data is None:
            async with tree_session(tree.zookeeper, tree.coordination, tree.timeout_s, access) as session:
                ensured = await await_outcome(lambda then: ensure_nodes(session, [znodes.CONFIG_CHANGES], then))
                ensured.result()
                refusal = await store(session, user, texts, notify=True)
        else:
            async with embedded_session(tree.data) as session:
                refusal = await store(session, user, texts, notify=False)
    except CoordinationError as error:
        fail(f"{tree.name}: {explain(error, access.identity_settings, IN_CONFIG)}")
    except RefusedError as error:
        fail(f"user {user!r}: {error.refusal.message}")
    except (DirectoryError, JournalError) as error:
        fail(str(error))
    if refusal is not None:
        fail(f"user {user!r}: {KafkaErrorCode(refusal.error).name}: {refusal.message}")


async def store(session: Coordination, user: str, texts: Mapping[str, str], *, notify: bool) -> Refusal | None:
    """Write the credentials into the node of a user; returns why nothing has changed. Raises RefusedError."""
    entity = entity_of([("user", user)])

    def start(then: Then) -> None:
        QuotaChange(session, entity, texts, notify=notify, then=lambda refusal: then(Outcome(refusal))).start()

    refusal: Refusal | None = (await await_outcome(start)).value
    return refusal


@asynccontextmanager
async def embedded_session(data: str) -> AsyncIterator[Coordination]:
    """Open the journal of a broker that is alone and does not run, or begin it before the first start.

    Raises DirectoryError, JournalError, OSError.
    """
    disk, directory = Disk(), LogDirectory(Disk(), data)
    directory.lock()
    clock = LoopClock(asyncio.get_running_loop())
    try:
        path = os.path.join(data, JOURNAL)
        if not disk.exists(path) and directory.identity() is not None:
            text = "belongs to a broker of a cluster: give --zookeeper or --coordination"
            raise DirectoryError(f"{data}: has no {JOURNAL}, so it {text}")
        service = EmbeddedCoordination.open(disk, path, clock)
        session = service.connect()
        yield session
        (await await_outcome(session.close)).result()
        service.close()
    finally:
        directory.unlock()
        clock.close()
