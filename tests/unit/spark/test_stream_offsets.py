"""The JSON of offsets: the connector's form, in a fixed order."""

import json
import random

from kafkalite_sdk import TopicPartition
from pyspark_kafkalite.stream_offsets import StreamOffset


def test_offsets_have_the_form_of_the_connector_in_a_fixed_order() -> None:
    """Trap 10: Spark compares the text; another order of keys would be new data for ever."""
    names = [TopicPartition(topic, index) for topic in ("b", "a") for index in (10, 9, 2)]
    texts = set()
    for seed in range(20):
        random.Random(seed).shuffle(names)
        offset = StreamOffset(dict.fromkeys(names, 7), {each.topic: "id" for each in names}, {names[0]: 1})
        texts.add(json.dumps(StreamOffset(offset.offsets).to_json()))
        assert list(offset.to_json()) == ["#start", "#topicIds", "a", "b"]
        assert list(offset.to_json()["#topicIds"]) == ["a", "b"]
    assert texts == {'{"a": {"2": 7, "9": 7, "10": 7}, "b": {"2": 7, "9": 7, "10": 7}}'}


def test_offsets_are_read_again_as_they_were_written() -> None:
    first, second = TopicPartition("a", 0), TopicPartition("b", 11)
    for offset in (
        StreamOffset({first: 5, second: 0}),
        StreamOffset({first: 5}, {"a": "id"}, start={first: 2}),
        StreamOffset({first: 5}, {"a": "id"}, initial=True),
        StreamOffset({}),
    ):
        assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


def test_offsets_of_a_connectors_checkpoint_are_read() -> None:
    found = StreamOffset.from_json(json.loads('{"orders":{"2":5,"1":0}}'))
    assert found == StreamOffset({TopicPartition("orders", 1): 0, TopicPartition("orders", 2): 5})
