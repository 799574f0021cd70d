"""Names of nodes that are numbers: broker ids and indexes of partitions."""

from kafkalite.coordination.znodes.fields import INT32_MAX, is_whole


def is_number(name: str) -> bool:
    """Whether the name of a node is a broker id or the index of a partition, as Kafka writes it."""
    return is_whole(name) and (name[0] != "0" or name == "0") and int(name) <= INT32_MAX
