"""What is there, in which versions."""

import json

from tests.kit.message_versions import REQUESTS, RESPONSES

KAFKA_4_3 = json.loads(
    '{"0": [3, 13], "1": [4, 18], "2": [0, 11], "3": [0, 13], "8": [2, 10], "9": [1, 10], "10": [0, 6],'
    ' "11": [0, 9], "12": [0, 4], "13": [0, 5], "14": [0, 5], "15": [0, 6], "16": [0, 5], "17": [0, 1],'
    ' "18": [0, 4], "19": [2, 7], "20": [1, 6], "21": [0, 2], "22": [0, 5], "23": [2, 4], "29": [1, 3],'
    ' "30": [1, 3], "31": [1, 3], "32": [1, 4], "33": [0, 2], "34": [1, 2], "35": [1, 5], "36": [0, 2],'
    ' "37": [0, 3], "42": [0, 2], "43": [0, 2], "44": [0, 1], "45": [0, 1], "46": [0, 0], "47": [0, 0],'
    ' "48": [0, 1], "49": [0, 1], "50": [0, 0], "51": [0, 0], "57": [0, 2], "60": [0, 2], "61": [0, 0],'
    ' "65": [0, 0], "66": [0, 2], "68": [0, 1], "69": [0, 1], "74": [0, 1], "75": [0, 0]}'
)


def test_version_ranges_match_kafka() -> None:
    """ListOffsets v0 is that of Apache Kafka 3.9, for clients only; AlterPartition has its versions 0 and 1, too."""
    expected = {int(key): tuple(versions) for key, versions in KAFKA_4_3.items()}
    assert {key: REQUESTS[key].versions for key in expected} == expected


def test_request_and_response_have_the_same_versions() -> None:
    assert set(REQUESTS) == set(RESPONSES)
    for key, request in REQUESTS.items():
        assert request.versions == RESPONSES[key].versions
        assert request.flexible == RESPONSES[key].flexible
        assert request.__name__.removesuffix("Request") == RESPONSES[key].__name__.removesuffix("Response")
