"""aiokafka's `AIOKafkaClient`, which this package does not have."""

from kafkalite_sdk.compat.aiokafka.installation import missing


class AIOKafkaClient:
    """Sends any request of Kafka's protocol in aiokafka. Creating one raises an error that names the replacement."""

    def __init__(self, *_: object, **__: object) -> None:
        raise missing("aiokafka.AIOKafkaClient; kafkalite_sdk.rpc sends any request. It")
