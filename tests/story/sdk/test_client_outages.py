"""A broker that dies is named: one warning, `health()`, errors, and a message when it is back."""

import logging

import pytest

from kafkalite.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.schema import Request
from kafkalite.testing.virtual_loop import pass_time
from tests.story.sdk.client_rig import Story, outcome, story
from tests.story.sdk.consumer_rig import A, append, new_consumer, values
from tests.story.sdk.producer_rig import producing

INIT = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)


def test_an_outage_of_a_broker_is_logged_once_and_named_between_polls(caplog) -> None:
    @story()
    async def run(world: Story) -> None:
        world.broker.cluster.create_topic("orders")
        append(world, A, b"0")
        async with new_consumer(world, group="g", group_protocol="classic") as consumer:
            consumer.subscribe("orders")
            await values(consumer, 1)
            assert consumer.health().waiting_for is None
            world.broker.nodes[1].stop()
            for _ in range(5):
                await consumer.poll(1.0)
            waiting_for = consumer.health().waiting_for
            assert waiting_for is not None
            assert waiting_for.startswith("a connection to broker 1: cannot connect to node1:9092")
            assert [each.levelname for each in _outages(caplog)] == ["WARNING"]
            await world.broker.nodes[1].start()
            append(world, A, b"1")
            await values(consumer, 1)
            assert consumer.health().waiting_for is None
        assert [each.levelname for each in _outages(caplog)] == ["WARNING", "INFO"]
        assert "node1:9092" in _outages(caplog)[0].getMessage()

    caplog.set_level(logging.INFO)
    run()


def test_a_producer_logs_each_outage_once(caplog) -> None:
    @story()
    async def run(world: Story) -> None:
        world.broker.cluster.create_topic("orders")
        async with producing(world) as producer:
            for number in range(2):
                await producer.send("orders", b"v")
                world.broker.nodes[1].stop()
                sent = producer.send("orders", b"v")
                await pass_time(10.0)
                assert len(_outages(caplog)) == 2 * number + 1
                await world.broker.nodes[1].start()
                await sent
                assert len(_outages(caplog)) == 2 * number + 2

    caplog.set_level(logging.INFO)
    run()


@story()
async def test_a_client_whose_settings_have_never_worked_asks_about_them(world: Story) -> None:
    world.broker.on(MetadataRequest, disconnect=True, times=None)
    failure = await outcome(world.new_client().start(0.5))
    assert str(failure).endswith("the connection was closed; does the listener require SASL (security_protocol)?")


@pytest.mark.parametrize("request_class", [ApiVersionsRequest, InitProducerIdRequest])
@story()
async def test_a_broker_that_dies_after_it_has_worked_leads_to_no_question_about_the_settings(
    world: Story, request_class: type[Request]
) -> None:
    async with world.client() as client:
        await client.call(1, INIT)
        world.broker.nodes[1].disconnect()
        await pass_time(1.0)
        world.broker.on(request_class, disconnect=True, times=None)
        failure = await outcome(client.call(1, INIT, timeout_s=5.0))
        assert str(failure).endswith("node1:9092: the connection was closed")


def _outages(caplog) -> list[logging.LogRecord]:
    return [each for each in caplog.records if each.name == "kafkalite_sdk.client.channels"]
