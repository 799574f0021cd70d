"""A loaded cluster with three replicas of each partition, and the checks after its faults.

librdkafka and our SDK send idempotently with acks=all, each to a topic of its own; a consumer of a group follows the
first topic and commits. `Replication.end` checks the histories, kills all brokers, and compares the files of the
replicas.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from kafkalite_sdk import Producer

from kafkalite.errors import KafkaConnectionError, KafkaTimeoutError
from kafkalite.net.client import ClientConnection
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.records import Builder
from tests.kit.broker_processes import (
    COORDINATOR_VERSION,
    POLL_S,
    REPLICATED,
    SESSION_MS,
    BrokerProcesses,
    call_or_none,
    image_of,
)
from tests.kit.brokers import wait_until
from tests.kit.checker import History, Partition, ViolationError, check
from tests.kit.clients.groups import committed
from tests.kit.committing_reader import CommittingReader
from tests.kit.load import BY_NAME, IdempotentSender
from tests.kit.readers import read_by_librdkafka
from tests.kit.rig import assert_kept
from tests.kit.sdk_load import AwaitedSender
from tests.kit.server import ALL, NOW_MS, outcomes, produce_request

TOPIC, SDK_TOPIC, ATTEMPTS_TOPIC, GROUP = "orders", "payments", "attempts", "billing"
PARTITIONS = 6
PAUSE_S = 0.05
SDK_OPEN = 60
ATTEMPTS = 100
CONNECTIONS = 10
ANSWER_S = 300.0
ATTEMPT_MS = 1_000
REQUEST_MS = 5_000
SETTINGS = {
    **REPLICATED,
    "log.retention.ms": "-1",  # the records of the attempts are old
    "replica.lag.time.max.ms": str(SESSION_MS),
}


class SdkSender(threading.Thread):
    """Our SDK's idempotent producer on an event loop of its own, until `finish`."""

    def __init__(self, address: str, topic: str, partitions: int) -> None:
        super().__init__(name="sdk sender")
        self.history = History()
        self.acks = 0
        self.failure: BaseException | None = None
        self._address = address
        self._topic = topic
        self._partitions = partitions
        self._ending = threading.Event()

    def run(self) -> None:
        try:
            asyncio.run(self._send())
        except BaseException as failure:
            self.failure = failure
            raise

    async def _send(self) -> None:
        async with Producer(
            self._address, acks="all", enable_idempotence=True, request_timeout_ms=REQUEST_MS
        ) as producer:
            sender = AwaitedSender("sdk", producer, self.history, self._topic, self._partitions)
            while not self._ending.is_set() and not sender.errors:
                await sender.more_acks(SDK_OPEN)
                self.acks = sender.acks
                await asyncio.to_thread(self._ending.wait, PAUSE_S)  # less load than the fastest
            await producer.flush()
        assert sender.errors == []

    def leave(self) -> None:
        """Send no more, and wait until everything is answered."""
        self._ending.set()
        self.join(180.0)
        assert not self.is_alive()

    def finish(self) -> None:
        """The same. Raises what went wrong."""
        self.leave()
        assert self.failure is None, self.failure


class Replication:
    """A running cluster with three replicas, its loads and checks.

    Arguments:
        cluster: has the brokers.
        available_s: all partitions acknowledge again within this time after a fault.

    Attributes:
        partitions: by topic.
        outages: seconds until all partitions acknowledged again, of each fault.
    """

    def __init__(self, cluster: BrokerProcesses, available_s: float) -> None:
        self.cluster = cluster
        self._available_s = available_s
        names = (TOPIC, SDK_TOPIC, ATTEMPTS_TOPIC)
        self.partitions = {each: cluster.create_topic(each, PARTITIONS, factor=3) for each in names}
        self.sender = IdempotentSender(cluster.bootstrap, TOPIC, PARTITIONS, pause_s=PAUSE_S)
        self.sdk = SdkSender(cluster.bootstrap, SDK_TOPIC, PARTITIONS)
        self.reader = CommittingReader(cluster.bootstrap, GROUP, TOPIC)
        self.outages: list[float] = []

    def begin(self) -> None:
        """Start the loads."""
        for each in (self.sender, self.sdk, self.reader):
            each.start()
        self.progress()
        self.wait_complete()

    def ended(self) -> bool:
        """Whether a load has failed."""
        return not all(each.is_alive() for each in (self.sender, self.sdk, self.reader))

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition while all loads run."""
        wait_until(lambda: self.ended() or condition(), what)
        assert not self.ended(), f"a load ended: {self.sender.errors}, {self.sender.failure}, {self.sdk.failure}"

    def available(self, since: float, asked: int | None = None) -> None:
        """Wait until all partitions acknowledge a record of a client that finds their leaders now.

        A client that waits for the response of a leader that is cut off, or suspended, continues after its own request
        timeout: `progress` waits for the loads.

        Arguments:
            since: a time of time.monotonic().
            asked: the broker that names the leaders; None = the first that serves.
        """
        address = self.cluster.address(self.cluster.serving[0] if asked is None else asked)
        left = set(range(PARTITIONS))

        def acknowledged() -> bool:
            image = image_of(address)
            leaders = {} if image is None else {each: image.leaders[ATTEMPTS_TOPIC, each] for each in left}
            led = {each: self.cluster.address(leader) for each, leader in leaders.items() if leader >= 0}
            for each, code in asyncio.run(attempt_each(led)).items():
                if code == 0:
                    left.discard(each)
            return not left

        wait_until(acknowledged, "all partitions acknowledge again", every=POLL_S)
        outage = time.monotonic() - since
        self.outages.append(outage)
        assert outage <= self._available_s, f"available after {outage:.1f} s"

    def progress(self) -> None:
        """Wait until both producers have more acknowledgements and the group has another commit."""
        acks, sdk_acks, commits = self.sender.acks + 50, self.sdk.acks + SDK_OPEN, self.reader.commits + 1
        self.wait(lambda: self.sender.acks >= acks, "librdkafka's records are acknowledged")
        self.wait(lambda: self.sdk.acks >= sdk_acks, "the SDK's records are acknowledged")
        self.wait(lambda: self.reader.commits >= commits, "a commit is acknowledged")

    def wait_complete(self) -> None:
        """Wait until all brokers know that every ISR has all of them."""
        all_ids = frozenset(self.cluster.brokers)
        wait_until(
            lambda: all(found == all_ids for found in self.cluster.agreed().in_sync.values()), "every ISR is complete"
        )

    def leader(self, partition: Partition = (ATTEMPTS_TOPIC, 0)) -> int:
        """The leader of a partition that all brokers know."""
        return self.cluster.agreed().leaders[partition]

    def end(self) -> None:
        """Everything acknowledged is there once, in order, for the group too; the replicas' files are equal."""
        self.sender.finish()
        self.sdk.finish()
        sends = self.sender.history.sends.values()
        acknowledged = {(*send.partition, send.offset) for send in sends if send.offset >= 0}
        wait_until(lambda: not self.reader.is_alive() or acknowledged <= self.reader.seen, "the group reads everything")
        self.reader.finish()
        self._check_commits()
        for topic, history in ((TOPIC, self.sender.history), (SDK_TOPIC, self.sdk.history)):
            read_by_librdkafka("reader", self.cluster.bootstrap, self.partitions[topic], history)
            assert_kept(check(history, "reader"))
        self.wait_complete()
        self.cluster.close()
        self.cluster.check_replicas(each for partitions in self.partitions.values() for each in partitions)

    def _check_commits(self) -> None:
        found = committed(self.cluster.bootstrap, GROUP, self.partitions[TOPIC])
        lost = {each: (offset, found[each]) for each, offset in self.reader.accepted.items() if found[each] < offset}
        assert lost == {}, "acknowledged and found offsets"

    def describe(self) -> None:
        """Print what is needed to understand a failure: the counts of the loads, and what each broker knows."""
        print(f"librdkafka: {self.sender.acks} acknowledged; SDK: {self.sdk.acks} acknowledged")
        reader = self.reader
        print(f"group: {len(reader.seen)} records read, {reader.commits} commits, {reader.refused} refused")
        for broker_id in self.cluster.serving:
            address = self.cluster.address(broker_id)
            response = call_or_none(address, FindCoordinatorRequest(key=GROUP), COORDINATOR_VERSION)
            coordinator = None if response is None else (response.error_code, response.node_id)
            print(f"broker {broker_id}: coordinator (error, id) {coordinator}, {image_of(address)}")

    def over(self) -> None:
        """Whatever happened: no thread goes on."""
        for broker_id in list(self.cluster.suspended):
            self.cluster.thaw(broker_id)
        if self.sender.is_alive():
            self.sender.give_up()
        for each in (self.reader.finish, self.sdk.leave):
            each()

    def summary(self) -> str:
        """What the loads did."""
        acks = f"{self.sender.acks} and {self.sdk.acks} records, {self.reader.commits} commits acknowledged"
        outages = ", ".join(f"{each:.1f}" for each in self.outages)
        return f"{acks}; acknowledging again after {outages} s"


def attempt_request(partition: int) -> Any:
    """A request with one record for a partition of ATTEMPTS_TOPIC, with acks=all."""
    builder = Builder(1 << 10)
    builder.append(NOW_MS, None, b"attempt")
    request = produce_request(ATTEMPTS_TOPIC, (partition, bytes(builder.build(0))), acks=ALL)
    request.timeout_ms = ATTEMPT_MS
    return request


async def attempt(address: str, partition: int) -> int | None:
    """Send one record with acks=all to a broker: the error code, None if there is no response or no connection."""
    host, port = address.rsplit(":", 1)
    request = attempt_request(partition)
    try:
        async with ClientConnection(host, int(port), timeout_s=2 * ATTEMPT_MS / 1000) as peer:
            code: int = outcomes(await peer.call(request, version_max=BY_NAME))[0].error_code
            return code
    except (KafkaConnectionError, KafkaTimeoutError):
        return None


async def attempt_each(addresses: Mapping[int, str]) -> dict[int, int | None]:
    """The same for partitions, each at an address."""
    codes = await asyncio.gather(*(attempt(address, partition) for partition, address in addresses.items()))
    return dict(zip(addresses, codes, strict=True))


class WaitingRequests:
    """100 produce requests with acks=all that are in the sockets of a broker when its process continues.

    They are written while the process is suspended. A request that is sent later may be acknowledged rightly: the
    broker may lead again, as the preferred replica.

    Arguments:
        address: of the broker, whose process runs.
        partition: of ATTEMPTS_TOPIC.
    """

    def __init__(self, address: str, partition: int) -> None:
        self._address = address
        self._partition = partition
        self._runner = asyncio.Runner()
        self._peers: list[ClientConnection] = []
        self._responses: list[asyncio.Future[Any]] = []
        self._runner.run(self._connect())

    async def _connect(self) -> None:
        host, port = self._address.rsplit(":", 1)
        self._peers = [ClientConnection(host, int(port), timeout_s=ANSWER_S) for _ in range(CONNECTIONS)]
        await self._each(ClientConnection.connect)

    def send(self) -> None:
        """Write them; the broker does not read them yet."""
        self._runner.run(self._send())

    async def _send(self) -> None:
        request = attempt_request(self._partition)
        for peer in self._peers:
            self._responses += [peer.call(request, version_max=BY_NAME) for _ in range(ATTEMPTS // CONNECTIONS)]
        await asyncio.sleep(0)  # requests are written at the end of the loop iteration

    def finish(self) -> Sequence[int | None]:
        """Wait for their responses: the error codes, None for those without a response.

        Raises:
            ViolationError: one was acknowledged.
        """
        try:
            return not_acknowledged(self._address, self._runner.run(self._codes()))
        finally:
            self._runner.run(self._each(ClientConnection.close))
            self._runner.close()

    async def _codes(self) -> list[int | None]:
        found = await asyncio.gather(*self._responses, return_exceptions=True)
        assert all(isinstance(each, KafkaConnectionError) or not isinstance(each, BaseException) for each in found), (
            found
        )
        return [None if isinstance(each, BaseException) else outcomes(each)[0].error_code for each in found]

    async def _each(self, step: Callable[[ClientConnection], Coroutine[Any, Any, None]]) -> None:
        await asyncio.gather(*map(step, self._peers))


def not_acknowledged(address: str, codes: Sequence[int | None]) -> Sequence[int | None]:
    """The codes of the attempts at a broker, if there are enough. Raises ViolationError if one was acknowledged."""
    assert len(codes) >= ATTEMPTS, "attempts that ended"
    if (acknowledged := codes.count(0)) > 0:
        raise ViolationError(f"{address} acknowledged {acknowledged} of {len(codes)} attempts")
    return codes


class Attempts(threading.Thread):
    """100 produce requests with acks=all to one broker, each on its own merits; `finish` returns the outcomes.

    Arguments:
        address: of the broker.
        partition: of ATTEMPTS_TOPIC.
    """

    def __init__(self, address: str, partition: int) -> None:
        super().__init__(name="attempts")
        self.acknowledged = 0
        self.codes: list[int | None] = []  # of each attempt, None = the broker accepts no connection or closes it
        self._address = address
        self._partition = partition

    def run(self) -> None:
        asyncio.run(self._attempts())

    async def _attempts(self) -> None:
        for _ in range(ATTEMPTS // 10):
            self.codes += await asyncio.gather(*(attempt(self._address, self._partition) for _ in range(10)))

    def finish(self) -> Sequence[int | None]:
        """Wait until all have ended; assert that there were 100 and that none was acknowledged."""
        self.join(120.0)
        return not_acknowledged(self._address, self.codes)
