"""Messages as Kafka's protocol guide shows them: a grammar in capital type names, and a table of the fields.

A field's description is its line under "Attributes:" in the docstring of its class.
"""

import inspect
import re
from collections.abc import Iterator

from kafkalite.protocol.schema import Layout, Message, Request, Response, Slot, walk
from kafkalite.protocol.stored.record_types import StoredKey
from tests.oracles import codec

COMPACT = {"string", "binary"}
NAMES = {"binary": "BYTES", "boolean": "BOOLEAN"}
ATTRIBUTE = re.compile(r"(?m)^ {4}(\w+): (.+)$")


def descriptions(cls: type) -> dict[str, str]:
    """Field name -> description, from the docstring of a struct."""
    _, _, attributes = inspect.cleandoc(cls.__doc__ or "").partition("Attributes:\n")
    return dict(ATTRIBUTE.findall(attributes))


def undescribed(cls: type[Message]) -> list[str]:
    """Fields without a description, and descriptions without a field."""
    found = []
    for each in walk(cls):
        fields = {one.name for one in each.__fields__}
        found += [f"{each.__qualname__}.{name}" for name in sorted(fields ^ set(descriptions(each)))]
    return found


def layout(cls: type[Message], version: int) -> Layout:
    found = codec.layout_of(cls, version)
    assert found is not None
    return found


def _slots(of: Layout) -> tuple[Slot, ...]:
    return (*of.fields, *of.tagged)


def _names(of: Layout) -> str:
    shown = [f"[{slot.name}]" if slot.wire.element is not None else slot.name for slot in _slots(of)]
    return " ".join([*shown, *(["_tagged_fields"] if of.flexible else [])])


def _type(slot: Slot, flexible: bool) -> str:
    kind = (slot.wire.element or slot.wire).kind
    name = NAMES.get(kind, kind.upper())
    if slot.nullable and slot.wire.element is None:
        name = f"NULLABLE_{name}"
    return f"COMPACT_{name}" if flexible and kind in COMPACT else name


def _grammar(of: Layout, depth: int) -> Iterator[str]:
    for slot in _slots(of):
        name = "  " * depth + slot.name
        if slot.struct is None:
            yield f"{name} => {_type(slot, of.flexible)}"
        else:
            yield f"{name} => {_names(slot.struct)}"
            yield from _grammar(slot.struct, depth + 1)


def grammar(title: str, of: Layout) -> str:
    return "\n".join(["```", f"{title} => {_names(of)}", *_grammar(of, 1), "```"])


def _rows(of: Layout) -> Iterator[str]:
    described = descriptions(of.cls)
    for slot in _slots(of):
        null = " May be null." if slot.nullable and "null" not in described[slot.name] else ""
        yield f"| {slot.name} | {described[slot.name][0].upper()}{described[slot.name][1:]}{null} |"
        if slot.struct is not None:
            yield from _rows(slot.struct)


def section(cls: type[Message], version: int) -> str:
    """Title, first line of the docstring, grammar and table of one message."""
    kind = "Request" if issubclass(cls, Request) else "Response"
    name = cls.__name__.removesuffix(kind)
    of = layout(cls, version)
    about = inspect.cleandoc(cls.__doc__ or "").partition("\n\nAttributes:")[0]
    table = "\n".join(["| field | description |", "|---|---|", *_rows(of)])
    return f"{about}\n\n{grammar(f'{name} {kind} (Version: {version})', of)}\n\n{table}\n"


def api(request: type[Request], response: type[Response]) -> str:
    """The chapter of one API key, newest version first."""
    name = request.__name__.removesuffix("Request")
    about = (inspect.getmodule(request).__doc__ or "").partition(". ")[2].strip()  # type: ignore[union-attr]
    parts = [f"## {name} API (Key: {request.api_key})\n\n{about}\n"]
    for cls, kind in ((request, "Requests"), (response, "Responses")):
        parts.append(f"### {name} {kind}\n")
        parts += [section(cls, version) for version in range(cls.versions[1], cls.versions[0] - 1, -1)]
    return "\n".join(parts)


def record(key: type[StoredKey]) -> str:
    """The chapter of one record type."""
    value = key.value_class
    name = key.__name__.removesuffix("Key")
    shown = [grammar(f"{name} Key", layout(key, 0))]
    shown += [grammar(f"{name} Value (Version: {v})", layout(value, v)) for v in range(value.versions[1], -1, -1)]
    about = inspect.cleandoc(value.__doc__ or "")
    return "\n\n".join([f"### {name} (Type: {key.type_id})", about, *shown]) + "\n"
