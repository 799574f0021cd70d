"""A pytest plugin for FastStream's tests, copied beside them: clients without an address get that of the suite."""

import os
from functools import wraps
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from faststream.kafka import KafkaBroker

DEFAULT = "localhost"


def replace_default_address(cls: Any) -> None:
    """Let `bootstrap_servers` be the broker of the suite where it is the default."""
    initialize = cls.__init__

    @wraps(initialize)
    def initialize_with_address(self: Any, bootstrap_servers: Any = DEFAULT, **kwargs: Any) -> None:
        address = os.environ["KAFKALITE_SUITE_ADDRESS"] if bootstrap_servers == DEFAULT else bootstrap_servers
        initialize(self, bootstrap_servers=address, **kwargs)

    cls.__init__ = initialize_with_address


replace_default_address(KafkaBroker)
replace_default_address(AIOKafkaAdminClient)
