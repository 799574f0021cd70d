"""Checks the directory of a checkpoint before Spark uses it: it must be that of the query which writes the table.

Pure, apart from reading files.
"""

import json
from pathlib import Path

from pyspark_kafkalite.jobs.errors import JobError
from pyspark_kafkalite.options import SourceOptions
from pyspark_kafkalite.stream_offsets import StreamOffset


def query_id(checkpoint: str) -> str | None:
    """Return the id of the query of a checkpoint; None = there is no checkpoint.

    Arguments:
        checkpoint: its directory.

    Raises:
        JobError: the directory is something else.
    """
    path = Path(checkpoint)
    try:
        return str(json.loads((path / "metadata").read_text())["id"])
    except FileNotFoundError:
        if path.is_dir() and any(path.iterdir()) and not (path / "offsets").is_dir():
            raise JobError(f"checkpoint {checkpoint}: the directory has other files; choose an empty one") from None
        return None
    except (NotADirectoryError, ValueError, KeyError, TypeError):
        raise JobError(f"checkpoint {checkpoint}: it is not a checkpoint of Spark; choose another directory") from None


def check_owner(checkpoint: str, location: str, writer: str | None, *, resume: bool, resumable: bool = True) -> None:
    """Verify that the query of a checkpoint is the one that writes a table.

    Arguments:
        checkpoint: its directory.
        location: of the table.
        writer: id of the query of the table's last commit; None = the table is empty.
        resume: a new checkpoint is to continue the table.
        resumable: whether jobs of this type can do so.

    Raises:
        JobError: it is the checkpoint of another query, or it was deleted.
    """
    found = query_id(checkpoint)
    if writer is None or found == writer or (found is None and resume):
        return
    if not resumable:
        raise JobError(
            f"checkpoint {checkpoint}: it is {'empty' if found is None else f'that of query {found}'}, but query "
            f"{writer} writes to table {location}; the state of this job is in the checkpoint of that query: restore "
            "it, or choose another table"
        )
    if found is None:
        raise JobError(
            f"checkpoint {checkpoint}: it is empty, but table {location} has commits of query {writer}; start with "
            "--resume-from-table to continue the table with a new checkpoint"
        )
    raise JobError(
        f"checkpoint {checkpoint}: it is that of query {found}, but query {writer} writes to table {location}; use "
        "the checkpoint of that query, or an empty directory with --resume-from-table"
    )


def check_topics(checkpoint: str, options: SourceOptions) -> None:
    """Verify that a checkpoint is one of a query that reads the topics of a job.

    Arguments:
        checkpoint: its directory.
        options: of the source.

    Raises:
        JobError: it is the checkpoint of another query.
    """
    sources = _sources(checkpoint)
    if sources is None:
        return
    step = "choose another directory"
    if len(sources) != 1:
        raise JobError(f"checkpoint {checkpoint}: it is that of a query with {len(sources)} sources; {step}")
    topics = _topics(sources[0])
    if topics is None:
        raise JobError(f"checkpoint {checkpoint}: it is that of a query with a source that is not a topic; {step}")
    wanted = options.topics.subscribed or {each.topic for each in options.topics.assigned or ()}
    if wanted and topics and not topics & set(wanted):
        raise JobError(
            f"checkpoint {checkpoint}: it is that of a query which reads {', '.join(sorted(topics))}, but this job "
            f"reads {', '.join(sorted(wanted))}; {step}"
        )


def last_offset(checkpoint: str) -> StreamOffset:
    """Return the offsets up to which a checkpoint has planned, with the ids of their topics; none if it has none.

    Arguments:
        checkpoint: its directory; it was checked.
    """
    sources = _sources(checkpoint)
    return StreamOffset({}) if sources is None else StreamOffset.from_json(json.loads(sources[0]))


def _sources(checkpoint: str) -> list[str] | None:
    """Return the offsets of each source in the last batch of a checkpoint; None = it has no batch."""
    offsets = Path(checkpoint, "offsets")
    numbers = [int(each.name) for each in offsets.iterdir() if each.name.isdecimal()] if offsets.is_dir() else []
    if not numbers:
        return None
    _version, _metadata, *sources = (offsets / str(max(numbers))).read_text().splitlines()
    return sources


def _topics(text: str) -> set[str] | None:
    """Return the topics of a source's offsets; None = it is another source."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    topics = {name: each for name, each in found.items() if not name.startswith("#")}
    if not all(isinstance(each, dict) and all(map(str.isdecimal, each)) for each in topics.values()):
        return None
    return set(topics)
