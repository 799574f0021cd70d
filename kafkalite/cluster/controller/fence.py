"""Accepts the requests of the current controller, and rejects those of earlier ones.

| request | error |
|---|---|
| from a KRaft controller, or with a negative controller id | INVALID_REQUEST |
| for another registration, without a broker epoch, or while this broker is not registered | STALE_BROKER_EPOCH |
| from a controller of an earlier epoch, or from another controller of the same epoch | STALE_CONTROLLER_EPOCH |
| with a controller epoch above that of `/controller_epoch` | STALE_CONTROLLER_EPOCH |

1. Until this process has registered, no request is accepted: one for a registration before a power failure would let it
   lead truncated logs in the leader epoch of the longer ones. The controller repeats its requests.
2. A broker epoch of -1, which Apache Kafka accepts from controllers before 2.2, is rejected.
3. A controller epoch above the known one is compared with the tree: a made-up one would fence the controller.
4. Each registration begins with the controller epoch of the tree, as a new process does. An older tree may have been
   restored, whose controllers have lower epochs: the epoch that was known before would fence them until as many
   elections have followed.

Sources: KafkaApis.isBrokerEpochStale, ReplicaManager (controllerEpoch) of Apache Kafka 3.9, which compares no ids, and
accepts a higher broker epoch than its own, and any higher controller epoch.
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
        controller_id, controller_epoch: of the latest accepted request of this registration; -1 before the first one.
        broker_epoch: of this broker's registration; None while it has none.
        tree_epoch: the controller epoch in the tree when it was last read in this registration; -1 before.
    """

    def __init__(self) -> None:
        self.controller_id = NO_EPOCH
        self.controller_epoch = NO_EPOCH
        self.broker_epoch: int | None = None
        self.tree_epoch = NO_EPOCH

    def registered(self, broker_epoch: int) -> None:
        """This broker has registered; requests for its other registrations are rejected."""
        self.broker_epoch = broker_epoch
        self.controller_id = self.controller_epoch = self.tree_epoch = NO_EPOCH

    def unregistered(self) -> None:
        """The registration has ended: no request is accepted until the next one."""
        self.broker_epoch = None

    def needs_tree_epoch(self, request: ControllerRequest) -> bool:
        """Whether a request can be accepted only after `/controller_epoch` is read."""
        return request.controller_epoch > self.tree_epoch and not self._check_sender(request)[0]

    def tree_epoch_read(self, epoch: int) -> None:
        """`/controller_epoch` has this value; an older one may come from a server that is behind."""
        self.tree_epoch = max(self.tree_epoch, epoch)

    def accept(self, request: ControllerRequest) -> tuple[int, str]:
        """Accept a request and store the controller's epoch; or return an error code of the table and its reason."""
        error, reason = self._check_sender(request)
        if not error and request.controller_epoch > self.tree_epoch:
            error, reason = (
                KafkaErrorCode.STALE_CONTROLLER_EPOCH,
                f"the controller epoch in the tree is {self.tree_epoch}",
            )
        if not error:
            self.controller_id, self.controller_epoch = request.controller_id, request.controller_epoch
        return error, reason

    def _check_sender(self, request: ControllerRequest) -> tuple[KafkaErrorCode, str]:
        if request.is_kraft_controller or request.controller_id < 0:
            return KafkaErrorCode.INVALID_REQUEST, "only controllers that are elected in ZooKeeper are supported"
        if self.broker_epoch is None:
            return (
                KafkaErrorCode.STALE_BROKER_EPOCH,
                f"broker epoch is {request.broker_epoch}, this broker has none yet",
            )
        if request.broker_epoch != self.broker_epoch:
            return (
                KafkaErrorCode.STALE_BROKER_EPOCH,
                f"broker epoch is {request.broker_epoch}, this registration has {self.broker_epoch}",
            )
        known = self.tree_epoch if self.controller_epoch == NO_EPOCH else self.controller_epoch
        if request.controller_epoch < known:
            return KafkaErrorCode.STALE_CONTROLLER_EPOCH, f"the latest controller epoch is {known}"
        if request.controller_epoch == self.controller_epoch and request.controller_id != self.controller_id:
            return (
                KafkaErrorCode.STALE_CONTROLLER_EPOCH,
                f"broker {self.controller_id} is the controller of this epoch",
            )
        return KafkaErrorCode.NONE, ""
