"""Logs stored configs that cannot be used, once each."""

import logging
from collections.abc import Mapping, Sequence

from kafkalite.config.group import parse_group_value
from kafkalite.config.keys import valid_texts
from kafkalite.config.stored import StoredBrokerConfig
from kafkalite.config.topic import StoredTopicConfig

LOGGER = logging.getLogger("kafkalite.server")


class ConfigProblems:
    """The problems of each topic, group and broker as they were logged last."""

    def __init__(self) -> None:
        self._logged: dict[str, Sequence[str]] = {}

    def report(self, subject: str, problems: Sequence[str]) -> None:
        """Log the problems that are new.

        Arguments:
            subject: what the configs are of, as the lines begin.
            problems: all that it has now.
        """
        before = self._logged.pop(subject, ())
        if problems:
            self._logged[subject] = problems
        for line in problems:
            if line not in before:
                LOGGER.error("%s: %s", subject, line)

    def report_topic(self, topic: str, stored: StoredTopicConfig) -> None:
        """Log the problems of a topic, and what they prevent."""
        lines = [f"{problem}; it is kept and not used" for problem in stored.problems]
        if stored.config.unreadable:
            names = ", ".join(stored.config.unreadable)
            lines.append(f"nothing is deleted or compacted, because these configs cannot be read: {names}")
        self.report(f"topic {topic}", lines)

    def report_broker(self, stored: StoredBrokerConfig) -> None:
        """Log the problems of the dynamic configs of the broker, and what they prevent."""
        lines = [f"{problem}; it is kept and not used" for problem in stored.problems]
        if stored.config.undefined:
            names = ", ".join(sorted(stored.config.undefined))
            text = "nothing is deleted or compacted of topics whose defaults cannot be read"
            lines.append(f"{text}: {names}")
        self.report("dynamic configs of the broker", lines)

    def report_group(self, group: str, texts: Mapping[str, str]) -> None:
        """Log the problems of a group."""
        _valid, problems = valid_texts(texts, parse_group_value)
        self.report(f"group {group!r}", [f"{problem}; it is kept and not used" for problem in problems])

    def forget_topic(self, topic: str) -> None:
        """A topic is no longer hosted: a later one with its name has its own lines."""
        self._logged.pop(f"topic {topic}", None)
