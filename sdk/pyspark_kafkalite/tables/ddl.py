"""Schemas as text of Spark's DDL: `id bigint, tags array<string>, at timestamp`. Needs pyarrow, no JVM.

Each Arrow type that a table has corresponds to one type of Spark, so the text is also how a commit stores a schema.
"""

import re
from collections.abc import Callable

import pyarrow

Types = dict[str, pyarrow.DataType]

SIMPLE: Types = {
    "boolean": pyarrow.bool_(),
    "tinyint": pyarrow.int8(),
    "smallint": pyarrow.int16(),
    "int": pyarrow.int32(),
    "bigint": pyarrow.int64(),
    "float": pyarrow.float32(),
    "double": pyarrow.float64(),
    "string": pyarrow.string(),
    "binary": pyarrow.binary(),
    "date": pyarrow.date32(),
    "timestamp": pyarrow.timestamp("us", "UTC"),
    "timestamp_ntz": pyarrow.timestamp("us"),
}
ALIASES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}
ALIASES |= {"timestamp_ltz": "timestamp", "bool": "boolean"}
TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|([A-Za-z0-9_]+)|('(?:[^'\\]|\\.)*')|(.))", re.DOTALL)
PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_ddl(text: str) -> pyarrow.Schema:
    """Return the Arrow schema of Spark's DDL.

    Arguments:
        text: `NAME TYPE [NOT NULL] [COMMENT 'text'], ...`; also `struct<NAME: TYPE, ...>`. Every column may be null.

    Raises:
        ValueError: it is not valid; the text names the position.
    """
    parser = _Parser(text)
    fields = parser.fields(end="")
    if len(fields) == 1 and fields[0].name.lower() == "struct" and text.strip().lower().startswith("struct<"):
        return pyarrow.schema(list(fields[0].type))
    return pyarrow.schema(fields)


def ddl_text(schema: pyarrow.Schema | pyarrow.StructType) -> str:
    """Return the text of a schema, without NOT NULL.

    Raises:
        ValueError: Spark has no such type.
    """
    return ", ".join(f"{_name(each.name)} {type_text(each.type)}" for each in schema)


def type_text(data_type: pyarrow.DataType) -> str:
    """Return the text of a type. Raises ValueError: Spark has no such type."""
    for matches, text in _TEXTS:
        if matches(data_type):
            return text(data_type)
    raise ValueError(f"type {data_type} does not exist in Spark")


def normalize_schema(schema: pyarrow.Schema) -> pyarrow.Schema:
    """Return a schema with the types that tables have: microseconds, no large and no dictionary types.

    Raises:
        ValueError: Spark has no such type.
    """
    return parse_ddl(ddl_text(schema))


def _name(name: str) -> str:
    if PLAIN_NAME.fullmatch(name):
        return name
    return "`" + name.replace("`", "``") + "`"


def _struct_text(data_type: pyarrow.StructType) -> str:
    return "struct<" + ", ".join(f"{_name(each.name)}: {type_text(each.type)}" for each in data_type) + ">"


_types = pyarrow.types
_TEXTS: list[tuple[Callable[[pyarrow.DataType], bool], Callable[[pyarrow.DataType], str]]] = [
    *((lambda one, of=of: one == of, lambda _, name=name: name) for name, of in SIMPLE.items()),
    (_types.is_large_string, lambda _: "string"),
    (_types.is_string_view, lambda _: "string"),
    (_types.is_large_binary, lambda _: "binary"),
    (_types.is_fixed_size_binary, lambda _: "binary"),
    (_types.is_date, lambda _: "date"),
    (_types.is_uint8, lambda _: "smallint"),
    (_types.is_uint16, lambda _: "int"),
    (_types.is_uint32, lambda _: "bigint"),
    (_types.is_timestamp, lambda one: "timestamp_ntz" if one.tz is None else "timestamp"),
    (_types.is_decimal, lambda one: f"decimal({one.precision}, {one.scale})"),
    (_types.is_map, lambda one: f"map<{type_text(one.key_type)}, {type_text(one.item_type)}>"),
    (_types.is_struct, _struct_text),
    (_types.is_list, lambda one: f"array<{type_text(one.value_type)}>"),
    (_types.is_large_list, lambda one: f"array<{type_text(one.value_type)}>"),
]


class _Parser:
    """Reads the text token by token; a token is (text, position, whether it is a quoted name)."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, int, bool]] = []
        for found in TOKEN.finditer(text):
            quoted, word, literal, other = found.groups()
            if quoted is not None:
                self._tokens.append((quoted[1:-1].replace("``", "`"), found.start(1), True))
            elif (token := word or literal or other) is not None and token.strip():
                self._tokens.append((token, found.end() - len(token), False))
        self._at = 0

    def fields(self, end: str) -> list[pyarrow.Field]:
        """Fields up to the token `end`; "" = up to the end of the text."""
        found: list[pyarrow.Field] = []
        while True:
            if self._peek() == end and not found:
                break
            found.append(self._field())
            if self._peek() == end:
                break
            self._expect(",")
        if end == "" and not found:
            raise self._error("a column")
        names = [each.name.lower() for each in found]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"schema {self._text!r}: column {name!r} occurs twice; Spark ignores their case")
        return found

    def _field(self) -> pyarrow.Field:
        name, _, quoted = self._next("a name")
        if name == "struct" and not quoted and self._peek() == "<":  # the type of the whole schema
            self._at -= 1
            return pyarrow.field(name, self._type())
        if not quoted and not re.fullmatch(r"\w+", name):
            self._at -= 1
            raise self._error("a name")
        if self._peek() == ":":
            self._at += 1
        field = pyarrow.field(name, self._type())
        if self._peek().lower() == "not":
            self._at += 1
            self._expect("null")
        if self._peek().lower() == "comment":
            self._at += 1
            self._next("a text")
        return field

    def _type(self) -> pyarrow.DataType:
        name = self._next("a type")[0].lower()
        name = ALIASES.get(name, name)
        if name in ("decimal", "dec", "numeric"):
            return pyarrow.decimal128(*self._numbers((10, 0)))
        if name in ("varchar", "char"):
            self._numbers((0,))
            return SIMPLE["string"]
        if name == "array":
            self._expect("<")
            inner = self._type()
            self._expect(">")
            return pyarrow.list_(inner)
        if name == "map":
            self._expect("<")
            key = self._type()
            self._expect(",")
            item = self._type()
            self._expect(">")
            return pyarrow.map_(key, item)
        if name == "struct":
            self._expect("<")
            fields = self.fields(end=">")
            self._expect(">")
            return pyarrow.struct(fields)
        if name not in SIMPLE:
            self._at -= 1
            raise self._error(f"one of {', '.join(SIMPLE)}, decimal(p, s), array<>, map<>, struct<>")
        return SIMPLE[name]

    def _numbers(self, default: tuple[int, ...]) -> tuple[int, ...]:
        if self._peek() != "(":
            return default
        self._at += 1
        found = []
        while True:
            token = self._next("a number")[0]
            if not token.isdigit():
                self._at -= 1
                raise self._error("a number")
            found.append(int(token))
            if self._peek() != ",":
                break
            self._at += 1
        self._expect(")")
        return (*found, *default[len(found) :])

    def _peek(self) -> str:
        if self._at == len(self._tokens):
            return ""
        text, _, quoted = self._tokens[self._at]
        return "`" if quoted else text

    def _next(self, expected: str) -> tuple[str, int, bool]:
        if self._at == len(self._tokens):
            raise self._error(expected)
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, token: str) -> None:
        if self._peek().lower() != token:
            raise self._error(repr(token))
        self._at += 1

    def _error(self, expected: str) -> ValueError:
        if self._at == len(self._tokens):
            return ValueError(f"schema {self._text!r}: it ends where {expected} is expected")
        found, position, _ = self._tokens[self._at]
        return ValueError(f"schema {self._text!r}: {found!r} at position {position}, expected {expected}")
