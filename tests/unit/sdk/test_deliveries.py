"""The futures of a producer's records: what asyncio and users may do with them."""

import asyncio
import gc
import weakref

import pytest
import uvloop
from kafkalite_sdk._speedups.deliveries import ProducerBatch

from kafkalite.errors import KafkaConnectionError

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS)
def run(request):
    with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
        yield runner.run


def batch_of(count, partition=3):
    batch = ProducerBatch("orders", partition, 1 << 20, asyncio.get_running_loop())
    return batch, [batch.append(1000 + number, None, b"value") for number in range(count)]


def batches_alive():
    return {id(each): each for each in gc.get_objects() if isinstance(each, ProducerBatch)}


def test_asyncio_treats_the_future_of_a_record_as_a_future(run):
    async def main():
        _, (future,) = batch_of(1)
        assert asyncio.isfuture(future)
        assert asyncio.ensure_future(future) is future
        assert future.get_loop() is asyncio.get_running_loop()
        assert not future.done() and not future.cancelled()
        with pytest.raises(asyncio.InvalidStateError):
            future.result()
        with pytest.raises(asyncio.InvalidStateError):
            future.exception()

    run(main())


def test_each_record_gets_its_own_offset_and_timestamp(run):
    async def main():
        batch, futures = batch_of(3)
        batch.acknowledge(40)
        metadata = [await future for future in futures]
        assert [each.offset for each in metadata] == [40, 41, 42]
        assert [each.timestamp_ms for each in metadata] == [1000, 1001, 1002]
        assert {(each.topic, each.partition) for each in metadata} == {("orders", 3)}

    run(main())


def test_log_append_time_replaces_the_timestamps_of_records(run):
    async def main():
        batch, futures = batch_of(2)
        batch.acknowledge(0, 5000)
        assert [future.result().timestamp_ms for future in futures] == [5000, 5000]

    run(main())


def test_an_unknown_base_offset_is_minus_one_for_every_record(run):
    async def main():
        batch, futures = batch_of(2)
        batch.acknowledge(-1)
        assert [future.result().offset for future in futures] == [-1, -1]

    run(main())


def test_gather_wait_for_shield_and_wait_complete(run):
    async def main():
        batch, futures = batch_of(4)
        asyncio.get_running_loop().call_soon(batch.acknowledge, 7)
        gathered = asyncio.gather(*futures)
        assert (await asyncio.wait_for(futures[1], 60)).offset == 8
        assert (await asyncio.shield(futures[2])).offset == 9
        done, pending = await asyncio.wait(futures)
        assert len(done) == 4 and not pending
        assert [each.offset for each in await gathered] == [7, 8, 9, 10]

    run(main())


def test_many_tasks_await_one_record(run):
    async def main():
        batch, (future,) = batch_of(1)

        async def offset():
            return (await future).offset

        tasks = [asyncio.create_task(offset()) for _ in range(3)]
        await asyncio.sleep(0)
        batch.acknowledge(5)
        assert await asyncio.gather(*tasks) == [5, 5, 5]

    run(main())


def test_every_record_of_a_failed_batch_raises_its_error(run):
    async def main():
        batch, futures = batch_of(3)
        batch.fail(KafkaConnectionError("gone"))
        for future in futures:
            with pytest.raises(KafkaConnectionError, match="gone") as raised:
                await future
            assert (type(future.exception()), str(future.exception())) == (type(raised.value), str(raised.value))
        depth, entry = 0, raised.value.__traceback__
        while entry is not None:
            depth, entry = depth + 1, entry.tb_next
        assert depth < 5  # raising it again does not lengthen its traceback

    run(main())


def test_a_cancelled_future_leaves_the_other_records_alone(run):
    async def main():
        batch, futures = batch_of(2)
        assert futures[0].cancel() and futures[0].cancelled() and futures[0].done()
        assert not futures[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await futures[0]
        batch.acknowledge(3)
        assert futures[1].result().offset == 4
        assert not futures[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            futures[0].result()

    run(main())


def test_a_cancelled_task_cancels_the_future_that_it_awaits(run):
    async def main():
        batch, (future, other) = batch_of(2)

        async def wait():
            await future

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert future.cancelled() and not other.cancelled()
        batch.acknowledge(0)

    run(main())


def test_callbacks_run_through_the_loop_in_the_order_of_their_registration(run):
    async def main():
        batch, futures = batch_of(3)
        called = []
        for future in futures:
            future.add_done_callback(lambda done: called.append(done.result().offset))
        futures[0].add_done_callback(called.append)
        removed = called.remove
        futures[1].add_done_callback(removed)
        assert futures[1].remove_done_callback(removed) == 1
        batch.acknowledge(10)
        assert called == []
        await asyncio.sleep(0)
        assert called == [10, futures[0], 11, 12]
        futures[2].add_done_callback(called.append)
        await asyncio.sleep(0)
        assert called[-1] is futures[2]

    run(main())


def test_batch_counts_its_observed_records(run):
    async def main():
        batch, futures = batch_of(5)
        futures[0].add_done_callback(lambda _: None)
        futures[1].cancel()
        futures[1].add_done_callback(lambda _: None)
        batch.fail(ValueError())
        assert batch.observed == 2
        assert type(futures[2].exception()) is ValueError
        with pytest.raises(ValueError):
            futures[3].result()
        assert (batch.observed, batch.records_count) == (4, 5)

    run(main())


def test_a_batch_is_completed_once(run):
    async def main():
        batch, _ = batch_of(1)
        batch.acknowledge(0)
        with pytest.raises(asyncio.InvalidStateError):
            batch.fail(ValueError())

    run(main())


def test_nothing_keeps_futures_and_batches_alive_after_completion(run):
    async def main():
        batch, futures = batch_of(100)
        holder = lambda _: None  # noqa: E731
        alive = weakref.ref(holder)
        for future in futures:
            future.add_done_callback(holder)
        batch.acknowledge(0)
        await asyncio.sleep(0)
        del batch, futures, future, holder
        gc.collect()
        assert alive() is None

    run(main())


def test_errors_that_users_keep_do_not_keep_batches_alive(run):
    async def fail(batch, future, raised):
        asyncio.get_running_loop().call_soon(batch.fail, KafkaConnectionError("gone"))
        try:
            await raised(future)
        except KafkaConnectionError as error:
            return error
        raise AssertionError

    async def main():
        before = batches_alive()
        for raised in (asyncio.gather, asyncio.shield, lambda future: asyncio.wait_for(future, 60), lambda f: f):
            batch, (future,) = batch_of(1)
            error = await fail(batch, future, raised)
            assert error.__traceback__ is not None
            del batch, future, error
            await asyncio.sleep(0)  # the loop releases the callback
            gc.collect()
            assert batches_alive().keys() <= before.keys()

    run(main())
