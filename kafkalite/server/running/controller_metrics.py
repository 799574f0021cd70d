"""The metrics of the controller, with the meanings of Kafka's; 0 on brokers that are not the controller.

| gauge | Kafka |
|---|---|
| `kafkalite_active_controller` | ActiveControllerCount |
| `kafkalite_offline_partitions` | OfflinePartitionsCount: without a leader |
| `kafkalite_not_preferred_leaders` | PreferredReplicaImbalanceCount: not led by their first replica |
| `kafkalite_unclean_leader_elections` | UncleanLeaderElectionsPerSec counts them: by this broker since its start |

Source: KafkaController.scala of Apache Kafka 3.9.
"""

from collections.abc import Callable

from kafkalite.metrics import Registry
from kafkalite.server.running.local_controller import LocalController
from kafkalite.state.controller.controller import ControllerCounts


def register_controller_metrics(registry: Registry, controller: LocalController) -> None:
    """Register the gauges; partitions are counted when they are read.

    Arguments:
        registry: of the broker.
        controller: on this broker, elected or not.
    """

    def gauge(name: str, help: str, read: Callable[[ControllerCounts], int]) -> None:
        def value() -> float:
            counts = controller.counts
            return 0 if counts is None else read(counts)

        registry.gauge(name, help, value)

    registry.gauge("kafkalite_active_controller", "1 if this broker is the controller.", lambda: int(controller.active))
    gauge("kafkalite_offline_partitions", "Partitions without a leader.", lambda each: each.offline_partitions)
    gauge(
        "kafkalite_not_preferred_leaders",
        "Partitions that are not led by their first replica.",
        lambda each: each.not_preferred,
    )
    registry.gauge(
        "kafkalite_unclean_leader_elections",
        "Elections by this broker of leaders that were not in sync.",
        lambda: controller.unclean_elections,
    )
