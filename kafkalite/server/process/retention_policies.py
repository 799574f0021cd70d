"""Loads the retention policies that topics name, and applies them after Kafka's own rules.

1. A policy is loaded once, as a job: an import may take longer than the event loop may wait. The first check that needs
   it applies Kafka's rules only.
2. A policy that cannot be loaded or used deletes nothing, and is reported at most once per minute and policy.
"""

import logging
from functools import partial

from kafkalite.clock import Clock, Offload, Outcome
from kafkalite.config.keys import ConfigError
from kafkalite.config.retention_policies import check_policy_name, installed_policies
from kafkalite.rate_limited_log import RateLimitedLog
from kafkalite.storage.log.log import Log
from kafkalite.storage.user_retention_policy import PolicyError, RetentionPolicy, count_by_policy


class RetentionPolicies:
    """The policies of one broker, by name.

    Arguments:
        clock: measures their calls.
        offload: loads them.
        log: reports those that cannot be used.
    """

    def __init__(self, clock: Clock, offload: Offload, log: RateLimitedLog) -> None:
        self._clock = clock
        self._offload = offload
        self._log = log
        self._policies: dict[str, RetentionPolicy | PolicyError | None] = {}  # None = it is being loaded

    def count_expired(self, log: Log, expired: int, now_ms: int | None, high_watermark: int) -> int:
        """Return the number of first segments of a log to delete.

        Arguments:
            log: of a topic with a policy.
            expired: number of segments that Kafka's rules delete.
            now_ms: wall time, None = it is not reliable.
            high_watermark: a segment that ends above it stays.
        """
        name = log.config.kafkalite_retention_policy
        policy = self._find(name)
        if policy is None:
            return expired
        try:
            if isinstance(policy, PolicyError):
                raise policy
            return count_by_policy(policy, log, expired, now_ms, high_watermark, self._clock)
        except PolicyError as error:
            text = "%s: the retention policy %r has deleted nothing: %s"
            self._log(logging.ERROR, f"retention policy {name}", text, log.directory, name, error)
            return expired

    def _find(self, name: str) -> RetentionPolicy | PolicyError | None:
        if name not in self._policies:
            self._policies[name] = None
            self._offload.run(load_policy, name, done=partial(self._loaded, name))
        return self._policies[name]

    def _loaded(self, name: str, outcome: Outcome) -> None:
        if outcome.error is None:
            self._policies[name] = outcome.result()
        else:
            self._policies[name] = PolicyError(f"it cannot be loaded: {outcome.error}")


def load_policy(name: str) -> RetentionPolicy:
    """Job: import the entry point of this name. Raises PolicyError."""
    try:
        check_policy_name(name)
        policy: object = installed_policies()[name].load()
    except ConfigError as error:
        raise PolicyError(str(error)) from error
    except Exception as error:  # whatever the import of a package raises
        raise PolicyError(repr(error)) from error
    if not callable(policy):
        raise PolicyError(f"{policy!r} is not callable")
    return policy
