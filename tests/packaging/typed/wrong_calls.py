"""Wrong calls of the SDK, which is never run: each is a type error, or mypy reports a needless `type: ignore`."""

from kafkalite_sdk import Consumer, Producer, blocking

producer = Producer("a:9092", value_serializer=str.encode)
producer.send("orders", 1)  # type: ignore[arg-type]
consumer = Consumer("a:9092", grup="g")  # type: ignore[call-arg]
consumer.seek("orders", 1)  # type: ignore[arg-type]
blocking.Admin("a:9092").topics.list(internl=True)  # type: ignore[call-arg]
blocking.Producer("a:9092", value_serializer=str.encode).send("orders", 1)  # type: ignore[arg-type]
