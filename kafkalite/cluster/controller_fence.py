"""Accepts the requests of the current controller, and rejects those of earlier ones.

| request | error |
|---|---|
| from a KRaft controller, or with a negative controller id | INVALID_REQUEST |
| for an earlier registration of this broker | STALE_BROKER_EPOCH |
| from a controller of an earlier epoch, or from another controller of the same epoch | STALE_CONTROLLER_EPOCH |

A higher broker epoch than the known one is accepted: the controller may see a registration before the broker itself.

Sources: KafkaApis.isBrokerEpochStale, ReplicaManager (controllerEpoch) of Apache Kafka 3.9, which does not compare ids.
"""

from typing import Protocol

from kafkalite.errors import KafkaErrorCode

NO_EPOCH = -1


class ControllerRequest(Protocol):
    """The fields that every request of a controller has."""

    controller_id: int
    is_kraft_controller: bool
    controller_epoch: int
    broker_epoch: int


class ControllerFence:
    """The epochs that a broker knows.

    Attributes:
        controller_id, controller_epoch: of the latest accepted request; -1 before the first one.
        broker_epoch: of this broker's registration, set by `registered`; -1 before the first one.
    """

    def __init__(self) -> None:
        self.controller_id = NO_EPOCH
        self.controller_epoch = NO_EPOCH
        self.broker_epoch = NO_EPOCH

    def registered(self, broker_epoch: int) -> None:
        """This broker has registered; requests for its earlier registrations are rejected."""
        self.broker_epoch = broker_epoch

    def accept(self, request: ControllerRequest) -> tuple[int, str]:
        """Accept a request and store the controller's epoch; or return an error code of the table and its reason."""
        error, reason = self._check(request)
        if not error:
            self.controller_id, self.controller_epoch = request.controller_id, request.controller_epoch
        return error, reason

    def _check(self, request: ControllerRequest) -> tuple[KafkaErrorCode, str]:
        if request.is_kraft_controller or request.controller_id < 0:
            return KafkaErrorCode.INVALID_REQUEST, "only controllers that are elected in ZooKeeper are supported"
        if NO_EPOCH < request.broker_epoch < self.broker_epoch:
            return (
                KafkaErrorCode.STALE_BROKER_EPOCH,
                f"broker epoch is {request.broker_epoch}, this registration has {self.broker_epoch}",
            )
        if request.controller_epoch < self.controller_epoch:
            return KafkaErrorCode.STALE_CONTROLLER_EPOCH, f"the latest controller epoch is {self.controller_epoch}"
        if request.controller_epoch == self.controller_epoch and request.controller_id != self.controller_id:
            return (
                KafkaErrorCode.STALE_CONTROLLER_EPOCH,
                f"broker {self.controller_id} is the controller of this epoch",
            )
        return KafkaErrorCode.NONE, ""
