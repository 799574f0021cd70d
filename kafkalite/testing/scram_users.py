"""Stores the SCRAM users of a broker in a test, as AlterUserScramCredentials does."""

from collections.abc import Mapping

from kafkalite.clock import Outcome, Then, await_outcome
from kafkalite.cluster.changes import Refusal, RefusedError
from kafkalite.cluster.configs.client_quotas import entity_of
from kafkalite.cluster.configs.quota_writes import QuotaChange
from kafkalite.cluster.credentials.texts import encode_credential
from kafkalite.net.sasl.scram import make_credential
from kafkalite.server.running.running_broker import RunningBroker


async def store_users(broker: RunningBroker, mechanism: str, users: Mapping[str, str]) -> None:
    """Store users, who can log in then.

    Arguments:
        broker: a listener of it offers SCRAM.
        mechanism: SCRAM-SHA-256 or SCRAM-SHA-512.
        users: passwords by name.

    Raises ValueError: a user cannot be stored.
    """
    assert broker.credentials is not None
    for user, password in users.items():
        texts = {mechanism: encode_credential(make_credential(mechanism, password))}
        refusal = await _store(broker, user, texts)
        if refusal is not None:
            raise ValueError(f"user {user!r} was not stored: {refusal.message or refusal.error}")
        broker.credentials.change(user, texts)


async def _store(broker: RunningBroker, user: str, texts: Mapping[str, str]) -> Refusal | None:
    try:
        entity = entity_of([("user", user)])
    except RefusedError as error:
        return error.refusal

    def start(then: Then) -> None:
        ended = QuotaChange(broker.metadata, entity, texts, notify=False, then=lambda refusal: then(Outcome(refusal)))
        ended.start()

    refusal: Refusal | None = (await await_outcome(start)).value
    return refusal
