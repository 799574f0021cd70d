"""librdkafka's clients are created in processes that can be killed (`tests/kit/isolated.py`), never in a test worker.

Their close and destroy may wait for ever, and no signal interrupts that wait. This plugin replaces the classes in the
worker before a test module imports them. Isolated processes do not load it.
"""

from typing import Any, NoReturn

import confluent_kafka
import confluent_kafka.admin

REASON = (
    "clients of librdkafka may block for ever: create them in a process that can be killed, see tests/kit/isolated.py"
)


def refusing(cls: Any) -> type:
    """A subclass that cannot be created."""

    def refuse(self: object, *_args: object, **_named: object) -> NoReturn:
        raise AssertionError(f"{cls.__name__}: {REASON}")

    return type(cls.__name__, (cls,), {"__init__": refuse})


for module, name in (
    (confluent_kafka, "Producer"),
    (confluent_kafka, "Consumer"),
    (confluent_kafka.admin, "AdminClient"),
):
    setattr(module, name, refusing(getattr(module, name)))
