"""The node of the finalized features that brokers of this project have, in the form of `/feature`.

It is a node of our own: a broker of Apache Kafka 3.9 exits on a finalized feature in `/feature` that it does not know.
It exists from the first start on; without data every feature has its highest level.
"""

from collections.abc import Mapping

from kafkalite.coordination.znodes import FEATURES
from kafkalite.coordination.znodes.fields import ZnodeReader, dump, parse

VERSION = 1
LEVEL_MAX = 32_767


def encode_levels(levels: Mapping[str, int]) -> bytes:
    """The content of the node."""
    features = {name: {"max_version_level": level} for name, level in levels.items()}
    return dump({"features": features, "version": VERSION})


def decode_levels(data: bytes) -> dict[str, int]:
    """The levels by feature; none without data. Raises ZnodeError, also for later versions."""
    if not data:
        return {}
    fields = ZnodeReader(FEATURES, parse(FEATURES, data))
    if fields.whole("version") != VERSION:
        raise fields.wrong("version")
    entries = fields.object_by_name("features").items()
    return {name: each.whole("max_version_level", minimum=0, maximum=LEVEL_MAX) for name, each in entries}
