"""docs/sdk.md lists every setting of the producer and of the consumer, those of security once, and no other."""

import inspect
import pydoc
import re
from pathlib import Path

import kafkalite_sdk
import pytest
from kafkalite_sdk import (
    Admin,
    AdminOptions,
    ClientOptions,
    Consumer,
    ConsumerOptions,
    Producer,
    ProducerOptions,
    blocking,
    columns,
    rpc,
)
from kafkalite_sdk.client.security import SECURITY_OPTIONS

from kafkalite import __version__
from tests.tidy.promises import tables

PAGE = Path(__file__).resolve().parents[2] / "docs/sdk.md"
NOT_LISTED = {"bootstrap_servers", "environment", "misplaced"}


@pytest.mark.parametrize(
    ("name", "client", "options"),
    [("Producer", Producer, ProducerOptions), ("Consumer", Consumer, ConsumerOptions), ("Admin", Admin, AdminOptions)],
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


CLIENTS = [
    *(getattr(module, name) for module in (kafkalite_sdk, blocking) for name in ("Producer", "Consumer", "Admin")),
    *(columns.ColumnReader, blocking.ColumnReader, rpc.Connection, blocking.Connection),
]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda each: f"{each.__module__}.{each.__name__}")
def test_signature_is_readable_and_names_importable_options(client: type) -> None:
    signature = inspect.signature(client)
    text = str(signature)
    assert len(text) <= 260 and "<class" not in text and "misplaced" not in text, text
    declared = inspect.signature(client.__init__, follow_wrapped=False).parameters
    code = client.__init__.__code__
    assert {*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount], "options"} == set(declared)
    options = signature.parameters["options"].annotation
    found = pydoc.locate(options)
    assert isinstance(found, type) and options in pydoc.render_doc(client), options
    described = pydoc.render_doc(found)
    for name in found.__annotations__.keys() - SECURITY_OPTIONS - ClientOptions.__annotations__.keys():
        assert re.search(rf"\b{name}\b.*:", described), name


def test_version_is_that_of_the_distribution() -> None:
    assert kafkalite_sdk.__version__ == __version__ and "__version__" in dir(kafkalite_sdk)
