"""Declares Kafka messages as typed classes, each once for all its versions.

```python
class HeartbeatRequest(Request, key=12, versions=(0, 4), flexible=4):
    group_id: string
    group_instance_id: string | None = field(since=3, default=None)
```
1. One class serves all versions. A version without a field neither sends nor reads it; decoding sets its default.
2. `| None` makes a field nullable from its first version on, or from `nullable_since`.
3. A tagged struct is `| None`, and None = not sent. If `nullable_since` makes it nullable, None is sent as null, and a
   struct of defaults is not sent.
4. As in Kafka's own classes every field has a default at run time; type checkers require fields without a declared one.
5. A declaration is compiled per version on first use into a `Layout`, used by `_speedups.codec` and its pure twin in
   `tests/oracles`.

The schema language of Kafka is described in its `common/message/README.md`.
"""

import sys
import types
from collections.abc import Callable, Iterator
from itertools import starmap
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, Union, dataclass_transform, get_args, get_origin

from kafkalite._speedups.codec import StructBase, register_request
from kafkalite.errors import DecodeError as DecodeError
from kafkalite.errors import EncodeError as EncodeError

NEVER = 1 << 15
UNTAGGED = -1
SECRETS = frozenset({"auth_bytes", "hmac", "salted_password"})  # fields that no text may show


class Wire(NamedTuple):
    """A wire type. `element`: type of the elements of an array; `struct`: class of a struct."""

    kind: str
    size_min: int  # bytes of the smallest value in versions that are not flexible
    element: "Wire | None" = None
    struct: "type[Struct] | None" = None


boolean = Annotated[bool, Wire("boolean", 1)]
int8 = Annotated[int, Wire("int8", 1)]
int16 = Annotated[int, Wire("int16", 2)]
uint16 = Annotated[int, Wire("uint16", 2)]
int32 = Annotated[int, Wire("int32", 4)]
uint32 = Annotated[int, Wire("uint32", 4)]
int64 = Annotated[int, Wire("int64", 8)]
float64 = Annotated[float, Wire("float64", 8)]
uuid = Annotated[bytes, Wire("uuid", 16)]
"""16 bytes; ZERO_UUID = none."""
string = Annotated[str, Wire("string", 2)]
binary = Annotated[bytes, Wire("binary", 4)]
record_bytes = Annotated[Any, Wire("records", 4)]
"""Record batches, opaque here: decoded as a memoryview of the input, encoded from bytes and file regions."""

ZERO_UUID = bytes(16)
IMPLICIT_DEFAULTS: dict[str, Any] = {
    "boolean": False,
    "float64": 0.0,
    "uuid": ZERO_UUID,
    "string": "",
    "binary": b"",
    "records": None,
    "array": [],
    "struct": None,
}
LENGTH_PREFIXED = frozenset({"string", "binary", "records", "array"})


class Field(NamedTuple):
    """One field of a declaration: its versions and its default.

    Attributes:
        since, until: first and last version that have it.
        nullable_since: first version in which it may be null; NEVER if in none.
        tag: number of the tagged field, UNTAGGED if it is not one; `tagged_since` is its first version as a tagged one.
        default: its value when absent; a list = a new empty list.
    """

    name: str
    wire: Wire
    since: int
    until: int
    nullable_since: int
    tag: int
    tagged_since: int
    default: Any


class _Absent:
    pass


_ABSENT = _Absent()


def field(
    *,
    since: int = 0,
    until: int = NEVER,
    nullable_since: int | None = None,
    tag: int = UNTAGGED,
    tagged_since: int | None = None,
    default: Any = _ABSENT,
    factory: Callable[[], Any] | None = None,
) -> Any:
    """Declare the versions and the default of a field; see `Field`.

    Arguments:
        since, until: first and last version with the field.
        nullable_since: first version in which it may be null; None = never.
        tag: number of a tagged field.
        tagged_since: first version in which the field is tagged; None = `since`.
        default: value in versions without the field; absent = the zero of its type.
        factory: creates the default; `list`: an empty array.
    """
    nullable = -1 if nullable_since is None else nullable_since
    first_tagged = since if tagged_since is None else tagged_since
    value = factory() if factory is not None else default
    return Field("", Wire("", 0), since, until, nullable, tag, first_tagged if tag != UNTAGGED else NEVER, value)


class Slot(NamedTuple):
    """A field in one version."""

    name: str
    wire: Wire
    nullable: bool
    tag: int
    default: Any
    struct: "Layout | None"  # of the struct, or of an array's elements
    element_size_min: int  # smallest size of an element in bytes: bounds the length of arrays


class Layout:
    """A struct in one version: fields in order, tagged fields by ascending tag, and absent fields."""

    __slots__ = ("absent", "cls", "fields", "flexible", "size_min", "tagged")

    def __init__(
        self,
        cls: type["Struct"],
        flexible: bool,
        fields: tuple[Slot, ...],
        tagged: tuple[Slot, ...],
        absent: tuple[tuple[str, Any], ...],
        size_min: int,
    ) -> None:
        self.cls = cls
        self.flexible = flexible
        self.fields = fields
        self.tagged = tagged
        self.absent = absent
        self.size_min = size_min


def _annotations(namespace: dict[str, Any]) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        annotate = annotationlib.get_annotate_from_class_namespace(namespace)
        if annotate is None:
            return {}
        return annotationlib.call_annotate_function(annotate, annotationlib.Format.VALUE)
    found: dict[str, Any] = namespace.get("__annotations__", {})
    return found


def _parse(annotation: Any) -> tuple[Wire, bool]:
    """The wire type of an annotation, and whether it may be None."""
    origin = get_origin(annotation)
    if origin is Union or origin is types.UnionType:
        inner = [part for part in get_args(annotation) if part is not types.NoneType]
        if len(inner) != 1:
            raise TypeError(f"a field has one type or that and None, not {annotation}")
        return _parse(inner[0])[0], True
    if origin is Annotated:
        wires = [part for part in annotation.__metadata__ if isinstance(part, Wire)]
        if len(wires) == 1:
            return wires[0], False
    if origin is list:
        element, nullable = _parse(get_args(annotation)[0])
        if nullable or element.kind == "array":
            raise TypeError(f"Kafka has no arrays of arrays or of nulls: {annotation}")
        return Wire("array", 4, element), False
    if isinstance(annotation, StructMeta):
        return Wire("struct", 0, struct=annotation), False  # type: ignore[arg-type]
    raise TypeError(f"{annotation!r} is not a wire type")


def _declare(name: str, annotation: Any, value: Any) -> Field:
    wire, optional = _parse(annotation)
    declared = value if isinstance(value, Field) else field(default=value)
    nullable_since, default = declared.nullable_since, declared.default
    if nullable_since == -1:
        omitted = declared.tag != UNTAGGED and wire.kind == "struct"
        nullable_since = declared.since if optional and not omitted else NEVER
    if default is _ABSENT:
        default = IMPLICIT_DEFAULTS.get(wire.kind, 0)
    return declared._replace(name=name, wire=wire, nullable_since=nullable_since, default=default)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class StructMeta(type):
    """Adds a slot for each declared field. The declarations are parsed on first use, so that an import is quick."""

    _declarations: list[tuple[str, Any, Any]]
    _fields: tuple[Field, ...] | None

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> "StructMeta":
        annotations = {key: kind for key, kind in _annotations(namespace).items() if get_origin(kind) is not ClassVar}
        hidden = [key for key in annotations for base in bases if hasattr(base, key)]
        if hidden:
            raise TypeError(f"{name}.{hidden[0]} would hide an attribute of every message")
        declarations = [(key, kind, namespace.pop(key, _ABSENT)) for key, kind in annotations.items()]
        namespace["__slots__"] = tuple(annotations)
        cls = super().__new__(mcs, name, bases, namespace, **options)
        cls._declarations, cls._fields = declarations, None
        return cls

    @property
    def __fields__(cls) -> tuple[Field, ...]:
        """The fields in the order of their declarations. Raises TypeError if one has no wire type."""
        if cls._fields is None:
            cls._fields = tuple(starmap(_declare, cls._declarations))
        return cls._fields


class Struct(StructBase, metaclass=StructMeta):
    """A group of fields in a message. Compared by value; it has no attributes but its fields. `repr` hides secrets."""

    def __repr__(self) -> str:
        values = (
            f"{each.name}={'[hidden]' if each.name in SECRETS else repr(getattr(self, each.name))}"
            for each in type(self).__fields__
        )
        return f"{type(self).__qualname__}({', '.join(values)})"


class Message(Struct):
    """A whole message: versions `versions[0]` to `versions[1]`, flexible from version `flexible` on."""

    versions: ClassVar[tuple[int, int]] = (0, -1)
    flexible: ClassVar[int] = NEVER

    def __init_subclass__(cls, versions: tuple[int, int] = (0, -1), flexible: int = NEVER, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.versions = versions
        cls.flexible = flexible

    @classmethod
    def __layout__(cls, version: int) -> Layout | None:
        """Compile one version; None if the message has no such version."""
        if not cls.versions[0] <= version <= cls.versions[1]:
            return None
        return compile_layout(cls, version, version >= cls.flexible)


class Request(Message):
    """A request. `api_key` is its key; its header has version 2 in flexible versions, else version 1."""

    api_key: ClassVar[int] = -1

    def __init_subclass__(cls, key: int = -1, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.api_key = key
        register_request(key, cls.flexible)


class Response(Message):
    """A response. Its header has version 1 from `header_flexible` on, which is `flexible` except for ApiVersions."""

    api_key: ClassVar[int] = -1
    header_flexible: ClassVar[int] = NEVER

    def __init_subclass__(cls, key: int = -1, header_flexible: int | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.api_key = key
        cls.header_flexible = cls.flexible if header_flexible is None else header_flexible

    @classmethod
    def has_error_code(cls, version: int) -> bool:
        """Return whether a response of this version has an error code at the top."""
        return any(each.name == "error_code" and each.since <= version <= each.until for each in cls.__fields__)


def response_class(request: type[Request]) -> type[Response]:
    """The class of the response to a request; both are declared in one module."""
    name = request.__name__.removesuffix("Request") + "Response"
    response: type[Response] = getattr(sys.modules[request.__module__], name)
    return response


AnyMessage = TypeVar("AnyMessage", bound=Message)


def compile_layout(cls: type[Struct], version: int, flexible: bool) -> Layout:
    """Compile a struct and its inner structs for a version of the message around it."""
    present = [each for each in cls.__fields__ if each.since <= version <= each.until]
    tagged = sorted((each for each in present if flexible and version >= each.tagged_since), key=lambda each: each.tag)
    fields = [each for each in present if each not in tagged]
    slots = tuple(_slot(each, version, flexible) for each in fields)
    return Layout(
        cls,
        flexible,
        slots,
        tuple(_slot(each, version, flexible) for each in tagged),
        tuple((each.name, each.default) for each in cls.__fields__ if each not in present),
        sum(1 if slot.nullable else _size_min(slot.wire, slot.struct, flexible) for slot in slots) + flexible,
    )


def _slot(each: Field, version: int, flexible: bool) -> Slot:
    inner = each.wire.element or each.wire
    struct = compile_layout(inner.struct, version, flexible) if inner.struct is not None else None
    element_size_min = _size_min(each.wire.element, struct, flexible) if each.wire.element is not None else 0
    return Slot(each.name, each.wire, version >= each.nullable_since, each.tag, each.default, struct, element_size_min)


def _size_min(wire: Wire, struct: Layout | None, flexible: bool) -> int:
    if struct is not None and wire.kind == "struct":
        if not struct.size_min:
            raise TypeError(f"{struct.cls.__qualname__} has no fields in this version")
        return struct.size_min
    return 1 if flexible and wire.kind in LENGTH_PREFIXED else wire.size_min


def walk(cls: type[Struct]) -> Iterator[type[Struct]]:
    """A struct class and all struct classes inside it."""
    yield cls
    for each in cls.__fields__:
        inner = (each.wire.element or each.wire).struct
        if inner is not None:
            yield from walk(inner)
