"""The SDK behind aiokafka's interface: the program that `aio_kafka` runs on aiokafka."""

from kafkalite._version import VERSION
from perf.clients.aio_kafka import AioKafka


class SdkAioKafka(AioKafka):
    name = "kafkalite-aiokafka"
    title = "kafkalite SDK, aiokafka's interface"
    module = "kafkalite_sdk.compat.aiokafka"

    def version(self) -> str:
        return VERSION


CLIENT = SdkAioKafka()
