"""The section [decoding] of a job file: the arguments of `Decoding`. Pure, without PySpark."""

from collections.abc import Mapping
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Any

from pyspark_kafkalite.decoding.options import Decoding
from pyspark_kafkalite.errors import OptionError
from pyspark_kafkalite.jobs.errors import JobError
from pyspark_kafkalite.jobs.settings.sections import Section

KEYS = tuple(each.name for each in fields_of(Decoding))
FILES = ("schema_file", "key_schema_file")


def decoding_settings(origin: str, fields: Mapping[str, Any], directory: Path) -> Decoding:
    """Check the section [decoding].

    Arguments:
        origin: the file, for errors.
        fields: of the section.
        directory: of relative paths.

    Raises:
        JobError: a key or a value is not valid.
    """
    section = Section(origin, "decoding", fields, KEYS)
    arguments = {key: _value(section, key, directory) for key in fields}
    try:
        return Decoding(**arguments).load_schemas()
    except OptionError as error:
        raise JobError(f"{origin}: [decoding] {error}") from None


def _value(section: Section, key: str, directory: Path) -> Any:
    if key == "nested":
        return section.flag(key, False)
    if key == "budget":
        return section.number(key)
    if key == "registry_auth":
        found = section.texts(key)
        if len(found) != 2:
            raise section.error(key, "expected a list of the user name and the password")
        return found
    text = section.text(key)
    return str(directory / text) if key in FILES and text is not None else text
