"""Faults around the registration of a broker: late requests for an earlier one, and ends of processes while hosting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kafkalite.coordination.errors import NoNodeError
from kafkalite.coordination.znodes.brokers import registration_path
from kafkalite.coordination.znodes.controller import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    decode_controller,
    decode_controller_epoch,
)
from kafkalite.errors import KafkaError, KafkaErrorCode
from kafkalite.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from kafkalite.server.running.clustered_broker import ClusteredBroker
from kafkalite.testing.virtual_loop import pass_time
from tests.story.cluster.world import ClusterWorld

INCREMENTAL = 1
ATTEMPT_S = 0.02
HOSTING_S = (0.0, 0.001, 0.01, 0.1)  # between a LeaderAndIsr request and the end of the process


class RegistrationFaults:
    """The faults of one run.

    Arguments:
        world: the cluster.
        start: starts a broker again, some time after its end.
        runs: whether a broker runs.
    """

    def __init__(self, world: ClusterWorld, start: Callable[[int], None], runs: Callable[[int], bool]) -> None:
        self._world = world
        self._start = start
        self._runs = runs
        self._healed = False
        self._late: list[asyncio.Task[None]] = []

    def reboot(self, broker_id: int) -> None:
        """The machine loses power and is back before the session of the broker has ended. The controller repeats a
        request of before.
        """
        with suppress(NoNodeError):  # it is not registered, or there is no controller
            late, epoch = self._late_request(broker_id), self._broker_epoch(broker_id)
            broker = self._world.brokers[broker_id]
            broker.cut_power()
            self._start(broker_id)
            self._late.append(asyncio.ensure_future(self._repeat(broker_id, late, epoch)))

    def kill_while_hosting(self, broker_id: int) -> None:
        """The process ends some time after the arrival of its next LeaderAndIsr request."""
        running = self._world.brokers[broker_id].running
        assert isinstance(running, ClusteredBroker)
        requests, pause_s = running.controller_requests, self._world.random.choice(HOSTING_S)
        apply = requests.leader_and_isr

        def applying(request: LeaderAndIsrRequest, then: Any) -> None:
            requests.leader_and_isr = apply  # type: ignore[method-assign]
            if not self._healed:
                self._world.loop.call_later(pause_s, self._kill, broker_id, running)
            apply(request, then)

        requests.leader_and_isr = applying  # type: ignore[method-assign]

    def heal(self) -> None:
        """No process ends any more."""
        self._healed = True

    async def ended(self) -> None:
        """Wait for the late requests. Raises AssertionError if one was accepted."""
        await asyncio.gather(*self._late)

    def _kill(self, broker_id: int, running: object) -> None:
        if not self._healed and self._runs(broker_id) and self._world.brokers[broker_id].running is running:
            self._world.count("ends while hosting")
            self._world.brokers[broker_id].kill()
            self._start(broker_id)

    def _broker_epoch(self, broker_id: int) -> int:
        return self._world.zookeeper.tree.get(registration_path(broker_id))[1].czxid

    def _late_request(self, broker_id: int) -> LeaderAndIsrRequest:
        """The partitions of a broker as the controller has sent them; NoNodeError if there is none."""
        tree, topics = self._world.zookeeper.tree, []
        for name, node in self._world.topics().items():
            states = [
                LeaderAndIsrPartitionState(
                    partition_index=index, controller_epoch=0, leader=state[0], leader_epoch=state[1], isr=[broker_id],
                    partition_epoch=state[2], replicas=[broker_id], is_new=False,
                )
                for index, state in self._states(name).items() if node.replicas[index] == (broker_id,)
            ]  # fmt: skip
            if states and node.topic_id is not None:
                topics.append(
                    LeaderAndIsrRequest.LeaderAndIsrTopicState(
                        topic_name=name, topic_id=node.topic_id, partition_states=states
                    )
                )
        return LeaderAndIsrRequest(
            controller_id=decode_controller(tree.get(CONTROLLER)[0]).broker_id,
            controller_epoch=decode_controller_epoch(tree.get(CONTROLLER_EPOCH)[0]),
            broker_epoch=self._broker_epoch(broker_id),
            type=INCREMENTAL,
            topic_states=topics,
            live_leaders=[],
        )

    def _states(self, topic: str) -> dict[int, tuple[int, int, int]]:
        """The states of a topic, none while it is being created."""
        return self._world.states(topic) if self._world.count_states(topic) == self._partitions(topic) else {}

    def _partitions(self, topic: str) -> int:
        return len(self._world.topics()[topic].replicas)

    async def _repeat(self, broker_id: int, late: LeaderAndIsrRequest, epoch: int) -> None:
        """Send the request to the new process until it answers, or is registered."""
        while self._may_be_late(broker_id, epoch):
            try:
                answer = await self._world.call(broker_id, late, 7)
            except KafkaError:  # it does not listen yet, or is not reached
                await pass_time(ATTEMPT_S)
            else:
                self._world.count("late requests")
                assert answer.error_code == KafkaErrorCode.STALE_BROKER_EPOCH, (
                    f"broker {broker_id} has answered a request for its registration {epoch} with {answer}"
                )
                return

    def _may_be_late(self, broker_id: int, epoch: int) -> bool:
        try:
            return self._broker_epoch(broker_id) == epoch
        except NoNodeError:  # its session has ended, and the broker has not registered yet
            return True
