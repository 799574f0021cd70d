"""Waits for the partitions of a topic that a client uses for the first time."""

import asyncio

from kafkalite.errors import AuthenticationError, KafkaErrorCode, error_for
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.cluster_view import ClusterView, MetadataChanges


def partitions_of(view: ClusterView, topic: str) -> set[int] | None:
    """Return the partition numbers of a topic, None = unknown."""
    found = view.topics.get(topic)
    return None if found is None or not found.partitions else set(range(len(found.partitions)))


async def wait_for_topic(client: ClusterClient, topic: str, timeout_s: float) -> set[int]:
    """Wait until the partitions of a topic are known; the broker may create it.

    Arguments:
        client: keeps the metadata of the topic current from now on.
        topic: its name.
        timeout_s: longest wait.

    Returns: its partition numbers.
    Raises: the error of the broker; AuthenticationError; UnknownTopicOrPartitionError after the timeout.
    """
    found = partitions_of(client.view, topic)
    if found is not None:
        return found
    known = client.loop.create_future()

    def changed(changes: MetadataChanges) -> None:
        code = changes.failed.get(topic)
        error = None if code is None else error_for(code, topic)
        if known.done():
            return
        if partitions_of(client.view, topic) is not None:
            known.set_result(None)
        elif error is not None and not error.retriable:
            known.set_exception(error)

    def rejected(error: AuthenticationError) -> None:
        if not known.done():
            known.set_exception(error)

    client.on_metadata.append(changed)
    client.on_rejected.append(rejected)
    try:
        client.use_topics([topic], create=True)
        async with asyncio.timeout(timeout_s):
            await known
    except TimeoutError:
        text = f"topic {topic} has no partitions after {timeout_s:g} s; does it exist?"
        raise error_for(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text) from None
    finally:
        client.on_metadata.remove(changed)
        client.on_rejected.remove(rejected)
    return partitions_of(client.view, topic) or set()
