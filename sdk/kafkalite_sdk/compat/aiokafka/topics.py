"""Topics of a cluster for aiokafka's consumer."""

from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite_sdk.client.cluster_client import ClusterClient


async def all_topics(client: ClusterClient) -> set[str]:
    """Return the names of all topics."""
    response = await client.call_any(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    return {each.name for each in response.topics if each.name is not None}
