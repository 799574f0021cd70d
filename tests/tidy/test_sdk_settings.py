"""docs/sdk.md lists every setting of the producer and of the consumer, and no other."""

import inspect
import re
from pathlib import Path

import pytest
from kafkalite_sdk import Consumer, Producer
from kafkalite_sdk.consumer.settings import ConsumerOptions
from kafkalite_sdk.producer.settings import ProducerOptions

from tests.tidy.promises import tables

PAGE = Path(__file__).resolve().parents[2] / "docs/sdk.md"
NOT_LISTED = {"bootstrap_servers", "environment"}


@pytest.mark.parametrize(
    ("name", "client", "options"), [("Producer", Producer, ProducerOptions), ("Consumer", Consumer, ConsumerOptions)]
)
def test_every_setting_is_listed(name: str, client: type, options: type) -> None:
    (table,) = [table for table in tables(PAGE.read_text()) if table[0][0] == name]
    listed = [setting for row in table[1:] for setting in re.findall(r"`(\w+)`", row[0])]
    arguments = {
        parameter.name
        for parameter in inspect.signature(client).parameters.values()
        if parameter.kind != inspect.Parameter.VAR_KEYWORD
    }
    assert sorted(listed) == sorted((arguments | options.__annotations__.keys()) - NOT_LISTED)
