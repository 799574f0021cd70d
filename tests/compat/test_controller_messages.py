"""The requests between brokers have the fields of Apache Kafka 3.9's own JSON files, which its client jar contains."""

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kafkalite.protocol.schema import UNTAGGED, Layout, Message, Slot
from tests.kit import jvm
from tests.kit.message_versions import EXTENSIONS_FROM, REQUESTS, RESPONSES

pytestmark = pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}")
KEYS = (4, 5, 6, 7, 56, 67)
CLASSES = [classes[key] for key in KEYS for classes in (REQUESTS, RESPONSES)]
Json = dict[str, Any]


@pytest.fixture(scope="module")
def jar() -> Iterator[zipfile.ZipFile]:
    """Kafka's client library."""
    (path,) = Path(jvm.kafka_classpath(jvm.PREVIOUS).removesuffix("/*")).glob("kafka-clients-*.jar")
    with zipfile.ZipFile(path) as opened:
        yield opened


def definition(jar: zipfile.ZipFile, cls: type[Message]) -> Json:
    text = jar.read(f"common/message/{cls.__name__}.json").decode()
    parsed: Json = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return parsed


def versions(text: str, last: int) -> range:
    """The versions of `3`, `0-4`, `2+` or `none`, up to the last one of the message."""
    if text == "none":
        return range(0)
    first, _, end = text.removesuffix("+").partition("-")
    return range(int(first), 1 + (last if text.endswith("+") else int(end or first)))


def plain(name: str) -> str:
    """A name without case and underscores: is_kraft_controller, isKRaftController."""
    return name.replace("_", "").lower()


def compare(layout: Layout, fields: list[Json], common: Mapping[str, list[Json]], version: int) -> None:
    """Assert that a struct has exactly these fields in this version, in this order, beside tagged fields of our own."""
    theirs = [each for each in fields if version in versions(each["versions"], version)]
    by_name = {slot.name: slot for slot in (*layout.fields, *layout.tagged) if slot.tag < EXTENSIONS_FROM}
    ours = [by_name[each.name] for each in layout.cls.__fields__ if each.name in by_name]
    assert [plain(slot.name) for slot in ours] == [plain(each["name"]) for each in theirs]
    for slot, each in zip(ours, theirs, strict=True):
        compare_field(slot, each, common, version)


def compare_field(slot: Slot, their: Json, common: Mapping[str, list[Json]], version: int) -> None:
    where = (slot.name, their)
    element = their["type"].removeprefix("[]")
    assert (slot.wire.kind == "array") == their["type"].startswith("[]"), where
    if slot.struct is None:
        assert (slot.wire.element or slot.wire).kind == {"bool": "boolean"}.get(element, element), where
    else:
        assert slot.struct.cls.__name__ == element, where
        compare(slot.struct, their.get("fields") or common[element], common, version)
    tagged = version in versions(their.get("taggedVersions", "none"), version)
    assert slot.tag == (their["tag"] if tagged else UNTAGGED), where
    assert slot.nullable == (version in versions(their.get("nullableVersions", "none"), version)), where
    if "default" in their:
        assert str(slot.default).lower() == str(their["default"]).lower(), where


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_declarations_have_the_fields_of_kafka(jar: zipfile.ZipFile, cls: type[Message]) -> None:
    theirs = definition(jar, cls)
    first, last = cls.versions
    valid = versions(theirs["validVersions"], last)
    assert range(first, last + 1) == valid
    common = {each["name"]: each["fields"] for each in theirs.get("commonStructs", ())}
    for version in valid:
        layout = cls.__layout__(version)
        assert layout is not None
        assert layout.flexible == (version in versions(theirs["flexibleVersions"], last))
        compare(layout, theirs["fields"], common, version)
