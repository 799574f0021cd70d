"""Reads the secret from which the salts of names without a SCRAM credential are derived; the first broker creates it.

All brokers of a cluster have the same secret, also after a restart. So an unknown user has one salt, as a known one,
whatever broker a client asks and when. The cluster id could not replace it: clients know it.

1. `/kafkalite/scram_secret` has random bytes. It is created once and never changed; a broker reads it at each start,
   before it accepts connections. A start without the coordination service fails, as the users cannot be read either.
2. Clients never see it. With `zookeeper.set.acl` only brokers read it (`coordination/zookeeper/access`).

Apache Kafka ignores the node: its brokers refuse an unknown user with the first message, and hide nothing.
"""

from functools import partial

from kafkalite.clock import Random, await_outcome
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.bulk_reads import ensure_nodes
from kafkalite.coordination.errors import NodeExistsError, NoNodeError
from kafkalite.coordination.znodes import SCRAM_SECRET, parents
from kafkalite.coordination.znodes.fields import ZnodeError

SECRET_BYTES = 32


async def read_or_create_secret(session: Coordination, random: Random) -> bytes:
    """Return the secret of the cluster.

    Arguments:
        session: with the coordination service.
        random: draws the secret of a cluster that has none.

    Raises: CoordinationError. ZnodeError: the node has another length.
    """
    found = await await_outcome(partial(session.get, SCRAM_SECRET))
    if isinstance(found.error, NoNodeError):
        fresh = random.bytes(SECRET_BYTES)
        (await await_outcome(partial(ensure_nodes, session, parents(SCRAM_SECRET)))).result()
        created = await await_outcome(partial(session.create, SCRAM_SECRET, fresh))
        if not isinstance(created.error, NodeExistsError):  # else another broker was first
            created.result()
            return fresh
        found = await await_outcome(partial(session.get, SCRAM_SECRET))
    secret: bytes = found.result()[0]
    if len(secret) != SECRET_BYTES:
        text = f"{SCRAM_SECRET}: {len(secret)} bytes, expected {SECRET_BYTES}; delete the node, a broker creates it"
        raise ZnodeError(text)
    return secret
