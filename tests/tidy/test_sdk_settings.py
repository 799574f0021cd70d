"""docs/sdk.md lists every setting of the producer and of the consumer, those of security once, and no other."""

import inspect
import re
from pathlib import Path

import pytest
from kafkalite_sdk import Admin, Consumer, Producer
from kafkalite_sdk.client.options import ClientOptions
from kafkalite_sdk.client.security import SECURITY_OPTIONS
from kafkalite_sdk.consumer.settings import ConsumerOptions
from kafkalite_sdk.producer.settings import ProducerOptions

from tests.tidy.promises import tables

PAGE = Path(__file__).resolve().parents[2] / "docs/sdk.md"
NOT_LISTED = {"bootstrap_servers", "environment", "misplaced"}


@pytest.mark.parametrize(
    ("name", "client", "options"),
    [("Producer", Producer, ProducerOptions), ("Consumer", Consumer, ConsumerOptions), ("Admin", Admin, ClientOptions)],
)
def test_every_setting_is_listed(name: str, client: type, options: type) -> None:
    (table,) = [table for table in tables(PAGE.read_text()) if table[0][0] == name]
    listed = [setting for row in table[1:] for setting in re.findall(r"`(\w+)`", row[0])]
    arguments = {
        parameter.name
        for parameter in inspect.signature(client).parameters.values()
        if parameter.kind != inspect.Parameter.VAR_KEYWORD
    }
    own = options.__annotations__.keys() - SECURITY_OPTIONS
    assert sorted(listed) == sorted((arguments | own) - NOT_LISTED)


def test_every_security_setting_is_listed() -> None:
    (table,) = [table for table in tables(PAGE.read_text()) if table[0][0] == "Security"]
    assert sorted(setting for row in table[1:] for setting in re.findall(r"`(\w+)`", row[0])) == sorted(
        SECURITY_OPTIONS
    )
