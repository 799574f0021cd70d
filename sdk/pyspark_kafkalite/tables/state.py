"""The content of a table after a commit: what a writer checks, and what a reader reads. Pure: no I/O."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kafkalite.model import TopicPartition
from pyspark_kafkalite.tables.errors import DamagedTableError
from pyspark_kafkalite.tables.model import FORMAT, NO_COMMIT, Commit, DataFile, EndOffsets, Gap


class TableState(NamedTuple):
    """A table after its last commit.

    Attributes:
        last: the last commit; None = the table is empty.
        appended: the last commit of a batch; the one after it replaces files.
        starts: the first offset of each partition.
        gaps: offsets that the table does not contain, between its first and its end offset.
        files: by name, in the order of their commits.
        batches: the last batch id of each query.
        dead_letters: files with records that could not be decoded, by name.
        schema: the last one that a commit has, as text of Spark's DDL; None = none has one.
        rewritten: batches have replaced files: the table has a state, not records.
        former: by name of a file, the topics whose rows in it are those of a former topic: it was created again.
    """

    last: Commit | None = None
    appended: Commit | None = None
    starts: Mapping[TopicPartition, int] = {}
    gaps: tuple[Gap, ...] = ()
    files: Mapping[str, DataFile] = {}
    batches: Mapping[str, int] = {}
    dead_letters: Mapping[str, DataFile] = {}
    schema: str | None = None
    rewritten: bool = False
    former: Mapping[str, tuple[str, ...]] = {}

    @property
    def sequence(self) -> int:
        """The number of the last commit; -1 = there is none."""
        return NO_COMMIT if self.last is None else self.last.sequence

    @property
    def ends(self) -> EndOffsets:
        """The end of each partition."""
        return {} if self.last is None else self.last.ends

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """The id of each topic, see `Commit`."""
        return {} if self.last is None else self.last.topic_ids

    def to_json(self) -> dict[str, Any]:
        """The state as a JSON object."""
        return {
            "format": FORMAT,
            "last": None if self.last is None else self.last.to_json(),
            "appended": None if self.appended is None else self.appended.to_json(),
            "starts": [[*name, start] for name, start in sorted(self.starts.items())],
            "gaps": self.gaps,
            "files": [each._asdict() for each in self.files.values()],
            "batches": dict(self.batches),
            "dead_letters": [each._asdict() for each in self.dead_letters.values()],
            "schema": self.schema,
            "rewritten": self.rewritten,
            "former": {name: list(topics) for name, topics in self.former.items()},
        }

    @classmethod
    def from_json(cls, fields: Any, origin: str) -> "TableState":
        """Read a state. Raises DamagedTableError: it is none, or one of a newer version."""
        if not isinstance(fields, dict) or fields.get("format") != FORMAT:
            raise DamagedTableError(f"{origin}: it is no snapshot of this version of kafkalite; it may be removed")
        try:
            return cls(
                last=_commit(fields["last"], origin),
                appended=_commit(fields["appended"], origin),
                starts={TopicPartition(topic, partition): start for topic, partition, start in fields["starts"]},
                gaps=tuple(Gap(*each) for each in fields["gaps"]),
                files={each["name"]: DataFile.from_json(each) for each in fields["files"]},
                batches=fields["batches"],
                dead_letters={each["name"]: DataFile.from_json(each) for each in fields["dead_letters"]},
                schema=fields["schema"],
                rewritten=fields["rewritten"],
                former={name: tuple(topics) for name, topics in fields.get("former", {}).items()},
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedTableError(f"{origin}: the snapshot cannot be read: {error!r}; it may be removed") from error


def _commit(fields: Any, origin: str) -> Commit | None:
    return None if fields is None else Commit.from_json(fields, origin)


class StateBuilder:
    """Applies commits, one after the other.

    Arguments:
        state: to begin with.

    Attributes:
        state: after the commits so far. It is a view: it changes with the next commit, see `frozen`.
    """

    def __init__(self, state: TableState) -> None:
        self._starts, self._batches = dict(state.starts), dict(state.batches)
        self._files, self._dead_letters = dict(state.files), dict(state.dead_letters)
        self._former = dict(state.former)
        self.state = state._replace(
            starts=self._starts,
            files=self._files,
            batches=self._batches,
            dead_letters=self._dead_letters,
            former=self._former,
        )

    def apply(self, commit: Commit) -> None:
        """Apply the next commit."""
        for recreated in commit.recreated:
            self._begin_again(recreated.topic)
        for name in commit.removed:
            self._files.pop(name, None)
            self._dead_letters.pop(name, None)
            self._former.pop(name, None)
        self._files.update({each.name: each for each in commit.files})
        self._dead_letters.update({each.name: each for each in commit.dead_letters})
        self.state = self.state._replace(last=commit)
        if commit.replaces:
            return
        self._batches[commit.query_id] = commit.batch_id
        for each in commit.ranges:
            self._starts.setdefault(each.name, each.start)
        state = self.state
        self.state = state._replace(
            appended=commit,
            gaps=(*state.gaps, *commit.gaps),
            schema=state.schema if commit.schema is None else commit.schema,
            rewritten=state.rewritten or bool(commit.removed),
        )

    def _begin_again(self, topic: str) -> None:
        """Forget the offsets of a former topic; its rows stay."""
        for partition in [each for each in self._starts if each.topic == topic]:
            del self._starts[partition]
        self.state = self.state._replace(gaps=tuple(each for each in self.state.gaps if each.topic != topic))
        for name, file in (*self._files.items(), *self._dead_letters.items()):
            if not file.spans or any(span.topic == topic for span in file.spans):
                self._former[name] = (*self._former.get(name, ()), topic)

    def frozen(self) -> TableState:
        """Return a state that does not change any more."""
        return self.state._replace(
            starts=dict(self._starts),
            files=dict(self._files),
            batches=dict(self._batches),
            dead_letters=dict(self._dead_letters),
            former=dict(self._former),
        )
