"""The options for keys and values. Pure: without pyarrow and PySpark."""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Union

from kafkalite_sdk.registry.address import without_userinfo

from pyspark_kafkalite.errors import OptionError

if TYPE_CHECKING:
    import pyarrow

FORMATS = ("raw", "string", "json", "avro", "protobuf")
MISFITS = ("stop", "dead_letters")
TO_TABLE, TO_TOPIC, FAIL = "table", "topic:", "fail"

SchemaOption = Union[str, bytes, "pyarrow.Schema", None]


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How `ingest` decodes keys and values, and what becomes of bad ones.

        Decoding(value="json", schema="id bigint, name string, at timestamp")
        Decoding(key="string", value="avro", registry_url="http://localhost:8081", dead_letters="topic:orders.bad")

    Arguments:
        value: "raw" (bytes), "string" (UTF-8), "json", "avro" or "protobuf".
        key: as `value`.
        schema: of JSON: the text of Spark's DDL or an Arrow schema; None = the text is validated and stored as it is.
            Of Avro: the reader's schema as JSON text.
        schema_file: a file instead of `schema`; of Protobuf: a FileDescriptorSet (`protoc --include_imports
            --descriptor_set_out`), or its bytes as `schema`.
        message: full name of the Protobuf message in `schema_file`.
        key_schema, key_schema_file, key_message: the same for keys.
        registry_url: of a schema registry for Avro and Protobuf; values have the id of their schema.
            A user name and password in it are those of `registry_auth`.
        registry_auth: its user name and password.
        budget: bad values that a batch may have: a float is a share of its rows (at least one row unless it is 0), an
            int a number of rows. Beyond it the batch fails.
        dead_letters: where bad values go: "table" (beside the table, in the same commit), "topic:NAME" (at least once)
            or "fail": the first one fails the batch.
        misfits: values whose schema does not fit the table "stop" the query, or are "dead_letters", too.
        nested: fields of values are those of one column `value`; by default each field is a column.

    Raises:
        OptionError: an argument is not valid; it names the argument.
    """

    value: str = "raw"
    key: str = "raw"
    schema: SchemaOption = None
    schema_file: str | None = None
    message: str | None = None
    key_schema: SchemaOption = None
    key_schema_file: str | None = None
    key_message: str | None = None
    registry_url: str | None = None
    registry_auth: tuple[str, str] | None = field(default=None, repr=False)
    budget: float = 0.01
    dead_letters: str = TO_TABLE
    misfits: str = "stop"
    nested: bool = False

    def __post_init__(self) -> None:
        if self.registry_url is not None:
            self._extract_userinfo(self.registry_url)
        for each in (self.part(key=False), self.part(key=True)):
            each.check(self.registry_url)
        if isinstance(self.budget, bool) or self.budget < 0 or (isinstance(self.budget, float) and self.budget > 1):
            raise OptionError("budget", f"{self.budget!r}, expected a share of 0.0 to 1.0, or a number of rows (int)")
        if self.dead_letters not in (TO_TABLE, FAIL) and self.topic in (None, ""):
            raise OptionError("dead_letters", f"{self.dead_letters!r}, expected table, topic:NAME or fail")
        if self.misfits not in MISFITS:
            raise OptionError("misfits", f"{self.misfits!r}, expected one of {', '.join(MISFITS)}")
        if self.misfits == "dead_letters" and self.dead_letters == FAIL:
            raise OptionError("misfits", "dead_letters contradicts dead_letters='fail'")

    def _extract_userinfo(self, url: str) -> None:
        """Remove user name and password from the address: it is part of texts. Raises OptionError."""
        try:
            address, userinfo = without_userinfo(url)
        except ValueError as error:
            raise OptionError("registry_url", str(error)) from None
        object.__setattr__(self, "registry_url", address)
        object.__setattr__(self, "registry_auth", self.registry_auth or userinfo)

    @property
    def topic(self) -> str | None:
        """The topic of the dead letters; None = they do not go to a topic."""
        return self.dead_letters.removeprefix(TO_TOPIC) if self.dead_letters.startswith(TO_TOPIC) else None

    @property
    def is_raw(self) -> bool:
        """Whether keys and values remain bytes: no row is bad then."""
        return (self.value, self.key) == ("raw", "raw")

    def part(self, *, key: bool) -> "Part":
        """What concerns keys, or values."""
        if key:
            return Part("key", self.key, self.key_schema, self.key_schema_file, self.key_message)
        return Part("value", self.value, self.schema, self.schema_file, self.message)

    def load_schemas(self) -> "Decoding":
        """Return the same with the content of the schema files: workers may not have the files.

        Raises:
            OptionError: a file cannot be read.
        """
        values, keys = self.part(key=False).content(), self.part(key=True).content()
        return replace(self, schema=values, schema_file=None, key_schema=keys, key_schema_file=None)

    def bad_rows_max(self, rows: int) -> int:
        """Return how many of the rows of a batch may be bad."""
        if self.dead_letters == FAIL:
            return 0
        if isinstance(self.budget, int):
            return self.budget
        return max(1, int(self.budget * rows)) if self.budget else 0


@dataclass(frozen=True)
class Part:
    """What concerns keys, or values.

    Attributes:
        name: "key" or "value".
        format: one of FORMATS.
        schema, file, message: see `Decoding`.
    """

    name: str
    format: str
    schema: SchemaOption
    file: str | None
    message: str | None

    @property
    def is_key(self) -> bool:
        """Whether it concerns keys."""
        return self.name == "key"

    def check(self, registry_url: str | None) -> None:
        """Raise OptionError: the arguments do not fit each other."""
        prefix = "key_" if self.is_key else ""
        if self.format not in FORMATS:
            raise OptionError(self.name, f"{self.format!r}, expected one of {', '.join(FORMATS)}")
        if self.schema is not None and self.file is not None:
            raise OptionError(f"{prefix}schema", f"{prefix}schema_file is given, too; expected one of both")
        declared = self.schema is not None or self.file is not None
        if declared and self.format in ("raw", "string"):
            raise OptionError(f"{prefix}schema", f"{self.name}={self.format!r} has no schema")
        if self.format in ("avro", "protobuf") and not declared and registry_url is None:
            raise OptionError("registry_url", f"{self.name}={self.format!r} needs it, or {prefix}schema_file")
        if self.format == "protobuf" and declared and self.message is None:
            raise OptionError(f"{prefix}message", f"it is missing, expected a name of a message in {prefix}schema_file")

    def content(self) -> SchemaOption:
        """Return the schema, also that of a file. Raises OptionError: it cannot be read."""
        if self.file is None:
            return self.schema
        try:
            data = Path(os.fspath(self.file)).read_bytes()
            return data if self.format == "protobuf" else data.decode()
        except (OSError, UnicodeDecodeError) as error:
            name = "key_schema_file" if self.is_key else "schema_file"
            raise OptionError(name, f"{self.file}: {error}") from error


RAW = Decoding()
"""Keys and values remain bytes."""
