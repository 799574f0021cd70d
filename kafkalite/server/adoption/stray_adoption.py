"""Adopts strays: they become partitions of the topic with their id, or of a new topic with their name and id.

1. The rules of `TopicAdoption` hold. The directory of a stray is renamed, nothing is copied.
2. A partition that has files is never replaced, and a topic never gets partitions of another id.
3. The configs of a topic that the journal does not know are lost: see `adopted_configs`.
"""

import os
from collections.abc import Sequence

from kafkalite.cluster.metadata.image import TopicImage
from kafkalite.cluster.metadata.store import MetadataStore
from kafkalite.coordination.backend import Coordination
from kafkalite.model import uuid_text
from kafkalite.server.adoption.topic_adoption import AdoptedTopic, TopicAdoption
from kafkalite.server.process.resources import JOURNAL
from kafkalite.storage import partition_adoption
from kafkalite.storage.dirs.stray_partitions import Stray, forget
from kafkalite.storage.partition_adoption import ADOPTING, AdoptionError, Candidate


class StrayAdoption(TopicAdoption):
    """Adopts strays of a log directory, which is locked."""

    async def adopt(self, strays: Sequence[Stray]) -> AdoptedTopic:
        """Adopt these strays, all or none of them where one conflicts with another or with a topic.

        Raises AdoptionError, DirectoryError, JournalError, ZnodeError, OSError.
        """
        if not self._disk.exists(os.path.join(self._data, JOURNAL)):
            text = f"has no {JOURNAL}: move its strays to the log directory that has one, then adopt them there"
            raise AdoptionError(f"{self._data}: {text}")
        return await self._with_store(lambda session, store, broker: self._adopt_strays(session, store, broker, strays))

    async def _adopt_strays(
        self, session: Coordination, store: MetadataStore, broker_id: int, strays: Sequence[Stray]
    ) -> None:
        topics = {topic.name: topic for topic in await store.topics()}
        candidates = partition_adoption.of_strays(list(strays))
        self._check(candidates, topics)
        for candidate in candidates:
            partition_adoption.fetch(self._disk, candidate, self._data, move=True, advance=lambda _bytes: None)
        await self._make_ready(session, store, broker_id, candidates, topics)
        for candidate in candidates:
            forget(self._disk, os.path.join(self._data, candidate.name))

    def _check(self, candidates: Sequence[Candidate], topics: dict[str, TopicImage]) -> None:
        """Raise AdoptionError if a stray cannot be adopted."""
        ids: dict[str, bytes | None] = {}
        names: set[str] = set()
        for one in candidates:
            if one.topic_id is None:
                raise AdoptionError(f"{one.source}: has no readable partition.metadata, so its topic id is unknown")
            if one.name in names:
                text = f"there is another stray of {one.name}; name the one to adopt, and delete or keep the other"
                raise AdoptionError(f"{one.source}: {text}")
            names.add(one.name)
            if ids.setdefault(one.topic, one.topic_id) != one.topic_id:
                raise AdoptionError(f"{one.source}: strays of topic {one.topic} have different ids; name one")
            self._check_assignment(one, topics.get(one.topic))

    def _check_assignment(self, one: Candidate, topic: TopicImage | None) -> None:
        assert one.topic_id is not None
        if topic is not None and topic.topic_id != one.topic_id:
            raise AdoptionError(
                f"{one.source}: topic {one.topic} was created again: its id is {uuid_text(topic.topic_id)}, that of "
                f"the stray {uuid_text(one.topic_id)}; delete the topic first, or keep the stray"
            )
        for suffix in ("", ADOPTING):
            path = os.path.join(self._data, one.name + suffix)
            if path != one.source and self._disk.exists(path):
                raise AdoptionError(f"{one.source}: {path} exists; move it away first, or keep the stray")
