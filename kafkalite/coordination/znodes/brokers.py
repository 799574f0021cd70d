"""Nodes of brokers: registrations, generated broker ids and finalized features (ZkData.scala, KafkaZkClient.scala).

The order of the keys is that of Kafka 3.9, whose maps are hashed by Scala 2.13.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from kafkalite.coordination.znodes import BROKER_IDS
from kafkalite.coordination.znodes.fields import ZnodeReader, dump, parse
from kafkalite.model import Endpoint

FEATURE = "/feature"
FEATURE_VERSIONS = (1, 2)  # 2 since KIP-778, without a minimum
VERSION_MAX = 32_767
PORT_MAX = 65_535
PLAINTEXT = "PLAINTEXT"
SECURITY_PROTOCOLS = frozenset({PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL"})
_ENDPOINT = re.compile(r"(?P<listener>[^:/]+)://\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>\d{1,5})")


class FeatureRange(NamedTuple):
    """The versions of a feature that a broker supports, both included."""

    first: int
    last: int


class BrokerRegistration(NamedTuple):
    """`/brokers/ids/<id>`. The czxid of the node is the broker epoch.

    Arguments:
        endpoints: the advertised listeners.
        timestamp_ms: wall time of the registration; 0 if a foreign node has none.
        rack: None = no rack.
        features: supported versions by name.
        jmx_port: -1 = no JMX.
        unclean_since: the broker epoch of the first registration since the last start after a power failure, when logs
            may lack records that were not flushed; 0 = this one, -1 = there was no such start. A field of ours, absent
            then; Apache Kafka ignores it.
    """

    endpoints: tuple[Endpoint, ...]
    timestamp_ms: int
    rack: str | None = None
    features: Mapping[str, FeatureRange] = {}
    jmx_port: int = -1
    unclean_since: int = -1


def registration_path(broker_id: int) -> str:
    """Node of a live broker."""
    return f"{BROKER_IDS}/{broker_id}"


def encode_registration(broker: BrokerRegistration) -> bytes:
    """Version 5. Host and port are those of the first PLAINTEXT endpoint, for clients before 0.9; else null and -1."""
    plaintext = next((each for each in broker.endpoints if each.security_protocol == PLAINTEXT), None)
    fields: dict[str, Any] = {
        "features": {
            name: {"min_version": supported.first, "max_version": supported.last}
            for name, supported in broker.features.items()
        },
        "listener_security_protocol_map": {each.listener: each.security_protocol for each in broker.endpoints},
        "endpoints": [str(each) for each in broker.endpoints],
    }
    if broker.rack is not None:
        fields["rack"] = broker.rack
    fields |= {
        "jmx_port": broker.jmx_port,
        "port": -1 if plaintext is None else plaintext.port,
        "host": None if plaintext is None else plaintext.host,
        "version": 5,
        "timestamp": str(broker.timestamp_ms),
    }
    if broker.unclean_since >= 0:
        fields["unclean_since"] = str(broker.unclean_since)
    return dump(fields)


def decode_registration(broker_id: int, data: bytes) -> BrokerRegistration:
    """Any version from 1 on; raises ZnodeError, also for endpoints that are no addresses."""
    path = registration_path(broker_id)
    fields = ZnodeReader(path, parse(path, data))
    if (version := fields.whole("version")) < 1:
        raise fields.wrong("version")
    if version == 1:
        if not fields.text("host"):
            raise fields.wrong("host")
        endpoints: tuple[Endpoint, ...] = (Endpoint(PLAINTEXT, fields.text("host"), _port(fields)),)
    else:
        protocols = fields.optional_texts("listener_security_protocol_map")
        endpoints = tuple(_endpoint(fields, text, protocols) for text in fields.text_list("endpoints"))
    if not endpoints:
        raise fields.wrong("endpoints")
    return BrokerRegistration(
        endpoints,
        0 if fields.optional_text("timestamp") is None else fields.whole_text("timestamp"),
        fields.optional_text("rack"),
        {name: _range(each) for name, each in fields.object_by_name("features", optional=True).items()},
        fields.whole("jmx_port", -1, minimum=-1, maximum=PORT_MAX),
        -1 if fields.optional_text("unclean_since") is None else fields.whole_text("unclean_since"),
    )


def generated_broker_id(sequence_version: int, reserved_id_max: int) -> int:
    """The id of a broker without a configured one.

    Arguments:
        sequence_version: version of `BROKER_SEQUENCE` after the broker has set its data, with any expected version.
        reserved_id_max: `reserved.broker.max.id`; configured ids are at most this.
    """
    return reserved_id_max + sequence_version


class FeatureNode(NamedTuple):
    """`/feature`: the finalized features of the cluster. They apply only if `enabled`."""

    enabled: bool
    levels: Mapping[str, int] = {}


def encode_features(node: FeatureNode) -> bytes:
    """Version 2."""
    levels = {name: {"max_version_level": level} for name, level in node.levels.items()}
    return dump({"features": levels, "version": FEATURE_VERSIONS[1], "status": int(node.enabled)})


def decode_features(data: bytes) -> FeatureNode:
    """Versions 1 and 2; raises ZnodeError, also for later versions: their features are unknown."""
    fields = ZnodeReader(FEATURE, parse(FEATURE, data))
    if fields.whole("version") not in FEATURE_VERSIONS:
        raise fields.wrong("version")
    if (status := fields.whole("status")) not in (0, 1):
        raise fields.wrong("status")
    entries = fields.object_by_name("features").items()
    return FeatureNode(status == 1, {name: _version(each, "max_version_level") for name, each in entries})


def _range(fields: ZnodeReader) -> FeatureRange:
    found = FeatureRange(_version(fields, "min_version"), _version(fields, "max_version"))
    if found.first > found.last:
        raise fields.wrong("min_version")
    return found


def _version(fields: ZnodeReader, name: str) -> int:
    return fields.whole(name, minimum=0, maximum=VERSION_MAX)


def _port(fields: ZnodeReader) -> int:
    return fields.whole("port", minimum=1, maximum=PORT_MAX)


def _endpoint(fields: ZnodeReader, text: str, protocols: Mapping[str, str] | None) -> Endpoint:
    """Without a map, in versions before 4, the name of a listener is its security protocol."""
    parsed = _ENDPOINT.fullmatch(text)
    if parsed is None or not parsed["host"] or not 1 <= int(parsed["port"]) <= PORT_MAX:
        raise fields.wrong("endpoints")
    listener = parsed["listener"]
    protocol = listener if protocols is None else protocols.get(listener)
    if protocol not in SECURITY_PROTOCOLS:
        raise fields.wrong("endpoints" if protocols is None else "listener_security_protocol_map")
    return Endpoint(listener, parsed["host"], int(parsed["port"]), protocol)
