"""The brokers that can be compared, by name."""

from perf.brokers.authorized import KafkaliteAcls
from perf.brokers.base import Broker
from perf.brokers.clusters import KafkaCluster, KafkaliteCluster
from perf.brokers.kafka import Kafka
from perf.brokers.kafkalite import Kafkalite
from perf.brokers.kfake import Kfake
from perf.brokers.replicated import Replicated
from perf.brokers.secured import SECURED

_ALL: tuple[Broker, ...] = (
    Kafkalite(),
    KafkaliteAcls(),
    *SECURED,
    KafkaliteCluster(),
    Kafka(),
    KafkaCluster(),
    Kfake(),
    Replicated(KafkaliteCluster(), "kafkalite-replicated", 3),
    Replicated(KafkaliteCluster(), "kafkalite-unreplicated", 1),
    Replicated(KafkaCluster(), "kafka-replicated", 3),
)
BROKERS = {broker.name: broker for broker in _ALL}
COMPARED = ("kafkalite", "kafka", "kfake")  # the others are for single rows
