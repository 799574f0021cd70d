"""An exception in each step of a consumer's polls: what was sent is delivered, and no commit covers the rest.

`Stepper` finds the steps by running the story, so a new step is tested without a change here. The application handles
what `poll` returns, commits, and continues after an exception; it replaces a consumer that has failed or
returns nothing.
"""

import gc
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from kafkalite_sdk import RebalanceListener, TopicPartition
from kafkalite_sdk.consumer.consumer import Consumer

from kafkalite.errors import KafkaError
from kafkalite.testing.virtual_loop import pass_time, run_virtually
from tests.kit.steps import Bug, Step, Stepper
from tests.story.sdk.client_rig import Story
from tests.story.sdk.consumer_rig import A, B, append, committed, new_consumer

COUNT = 8
SOURCES = tuple(
    f"sdk/kafkalite_sdk/consumer/{name}.py"
    for name in (
        *("fetch/fetcher", "fetch/partition_buffer", "fetch/response_memory", "offsets/positions"),
        *("iteration", "poison", "poll_loop"),
    )
)
STEPPER = Stepper(SOURCES, frozenset())
EXCEPTIONS_MAX = 5
EMPTY_MAX = 3


class Application:
    """Reads two partitions, commits after each poll, and notes what was delivered when it commits."""

    def __init__(self, world: Story) -> None:
        self.world = world
        self.delivered: dict[Any, set[int]] = {A: set(), B: set()}
        self.exceptions = self.empty = 0

    @property
    def done(self) -> bool:
        return sum(map(len, self.delivered.values())) == 2 * COUNT

    async def run(self) -> None:
        while not self.done:
            with self.noted():
                settings: Any = {"group": "g", "enable_auto_commit": False, "max_poll_records": 3, "on_poison": "raise"}
                consumer = new_consumer(self.world, value_deserializer=int, **settings)
                try:
                    await consumer.start()
                    consumer.assign([A, B])
                    await self.read(consumer)
                finally:
                    await consumer.close()

    async def read(self, consumer: Consumer[Any, Any]) -> None:
        self.empty = 0
        while not self.done and self.empty <= EMPTY_MAX:
            with self.noted():
                await self.step(consumer)
            consumer._driver.client.check_owner()
        assert self.empty <= EMPTY_MAX, "the consumer returns no records any more"

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Count an exception that the application gets."""
        try:
            yield
        except (Bug, KafkaError):
            self.exceptions += 1
            assert self.exceptions <= EXCEPTIONS_MAX

    async def step(self, consumer: Consumer[Any, Any]) -> None:
        records = await consumer.poll(1.0)
        self.empty = 0 if records else self.empty + 1
        for record in records:
            self.delivered[record.topic, record.partition].add(record.offset)
        await consumer.commit()
        self.check_commits(self.delivered)

    def check_commits(self, handled: dict[Any, set[int]]) -> None:
        """No commit covers a record that was not handled."""
        for commit in committed(self.world)[-1:]:
            for (_, number), offset in commit.items():
                assert handled[(A, B)[number]] >= set(range(offset)), "a commit covers what was not delivered"


async def story_of_the_application(new: Callable[[Story], Application] = Application) -> Application:
    world = Story(1)
    world.expect_failures()
    application = new(world)
    async with world.broker:
        world.broker.cluster.create_topic("orders", 2)
        for partition in (A, B):
            for first in range(0, COUNT, 2):
                append(world, partition, b"%d" % first, b"%d" % (first + 1))
        await application.run()
    return application


def steps() -> list[Step]:
    with STEPPER.found() as found:
        run_virtually(story_of_the_application)
    return found


@pytest.mark.filterwarnings("ignore:unclosed Consumer")  # an exception in a step of the close
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("after", [0, 6, 8])
def test_exception_in_any_step_of_a_poll_loses_no_record_and_commits_none_that_was_not_delivered(after: int) -> None:
    """In the first execution of a step, and in later ones, when records were taken; not each step has so many."""
    found = steps()
    assert len(found) > 60
    failed: dict[str, str] = {}
    raised = 0
    for step in found:
        with STEPPER.fails_at(step, after):
            try:
                application, _ = run_virtually(story_of_the_application)
            except Exception as error:  # each step is reported
                failed[str(step)] = repr(error)
                continue
        raised += STEPPER.raised
        assert application.delivered == {A: set(range(COUNT)), B: set(range(COUNT))}
    gc.collect()
    assert failed == {}
    assert raised == len(found) if after == 0 else raised > 20


# awaits, and listeners


class Listener(RebalanceListener):
    """Counts its calls, and raises in one of them."""

    def __init__(self, fails_at: tuple[str, int] | None) -> None:
        self.calls: Counter[str] = Counter()
        self._fails_at = fails_at

    def _called(self, name: str) -> None:
        self.calls[name] += 1
        if (name, self.calls[name]) == self._fails_at:
            raise Bug(name)

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._called("assigned")

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._called("revoked")

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._called("lost")


class Member(Application):
    """Reads as the member of a group, which is removed by the coordinator and subscribes again meanwhile."""

    def __init__(self, world: Story, fails_at: tuple[str, int] | None = None) -> None:
        super().__init__(world)
        self.listener = Listener(fails_at)
        self.removed = False

    async def run(self) -> None:
        while not self.done:
            with self.noted():
                settings: Any = {"group": "g", "group_protocol": "classic", "enable_auto_commit": False}
                consumer = new_consumer(self.world, value_deserializer=int, max_poll_records=3, **settings)
                try:
                    await consumer.start()
                    consumer.subscribe("orders", listener=self.listener)
                    await self.use(consumer)
                finally:
                    await consumer.close()
            self.check_commits(self.delivered)

    async def use(self, consumer: Consumer[Any, Any]) -> None:
        await self.step(consumer)
        await self.lose_partitions()
        await self.step(consumer)
        await consumer.unsubscribe()
        consumer.subscribe("orders", listener=self.listener)
        await self.read(consumer)
        for call in (consumer.position(A), consumer.committed([A]), consumer.end_offsets([A])):
            await call

    async def lose_partitions(self) -> None:
        """The coordinator does not know the member any more, once."""
        if self.removed:
            return
        self.removed = True
        group = self.world.broker.cluster.groups["g"]
        for member_id in list(group.members):
            group.remove(member_id)
        await pass_time(4.0)  # a heartbeat


class StreamReader(Member):
    """The same with a stream: a commit covers what is complete.

    Attributes:
        completed: offsets by partition.
    """

    explicit = False

    def __init__(self, world: Story, fails_at: tuple[str, int] | None = None) -> None:
        super().__init__(world, fails_at)
        self.completed: dict[Any, set[int]] = {A: set(), B: set()}

    async def use(self, consumer: Consumer[Any, Any]) -> None:
        (stream,) = consumer.streams(1, explicit=self.explicit)
        while not self.done:
            with self.noted():
                record = await anext(stream)
                offsets = self.delivered[record.topic, record.partition]
                offsets.add(record.offset)
                if self.explicit:
                    stream.complete(record)
                await consumer.commit()
                behind = set() if self.explicit else {record.offset}
                handled = {**self.delivered, (record.topic, record.partition): offsets - behind}
                self.check_commits(handled)
                if sum(map(len, self.delivered.values())) == COUNT:
                    await self.lose_partitions()
            consumer._driver.client.check_owner()


class ExplicitReader(StreamReader):
    explicit = True


AWAITS = Stepper(("sdk/kafkalite_sdk/consumer/",), awaits=True)


@pytest.mark.filterwarnings("ignore:unclosed Consumer")  # an exception at an await of the close
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("new", [Application, Member, StreamReader])
def test_exception_at_any_await_loses_no_record_and_commits_none_that_was_not_delivered(
    new: Callable[[Story], Application],
) -> None:
    with AWAITS.found() as found:
        run_virtually(partial(story_of_the_application, new))
    assert len(found) > 15
    failed: dict[str, str] = {}
    for step in found:
        with AWAITS.fails_at(step):
            try:
                run_virtually(partial(story_of_the_application, new))
            except Exception as error:  # each step is reported
                failed[str(step)] = repr(error)
        assert AWAITS.raised, step
    gc.collect()  # the warnings of consumers whose close has failed are ignored here
    assert failed == {}


@pytest.mark.parametrize("new", [Member, StreamReader, ExplicitReader])
def test_each_call_of_a_listener_may_raise_while_records_are_read(new: type[Member]) -> None:
    async def run(fails_at: tuple[str, int] | None) -> Counter[str]:
        application = await story_of_the_application(partial(new, fails_at=fails_at))
        assert isinstance(application, Member)
        assert application.exceptions == (fails_at is not None)
        return application.listener.calls

    calls, _ = run_virtually(partial(run, None))
    assert set(calls) == {"assigned", "revoked", "lost"}
    for name, count in calls.items():
        for number in range(1, count + 1):
            run_virtually(partial(run, (name, number)))
