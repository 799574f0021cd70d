"""Bootstrap addresses and the back-off of a client."""

import pytest
from kafkalite_sdk.client.settings import parse_bootstrap

from kafkalite.backoff import Backoff


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1", [("a", 1)]),
        (" a:1 , b:65535,,c ", [("a", 1), ("b", 65535), ("c", 9092)]),
        (["a:1", "b:2,c:3"], [("a", 1), ("b", 2), ("c", 3)]),
        (("a:1", "a:1"), [("a", 1)]),
        ("[::1]:19092,[fe80::1%eth0]", [("::1", 19092), ("fe80::1%eth0", 9092)]),
    ],
)
def test_bootstrap_servers(servers, addresses):
    assert parse_bootstrap(servers) == tuple(addresses)


@pytest.mark.parametrize(
    ("servers", "error"),
    [
        ("", r"bootstrap_servers is '', expected at least one address"),
        ([], "expected at least one address"),
        (" , ", "expected at least one address"),
        ("a:0", "'a:0' has port 0, expected 1 to 65535"),
        ("a:65536", "has port 65536"),
        ("a:", "'a:' is not an address"),
        ("a:b", "is not an address"),
        ("::1:9092", r'is not an address; expected "host:port" or "\[ipv6\]:port"'),
        ("http://a:1", "is not an address"),
        ("a b:1", "is not an address"),
        ([("a", 1)], "expected .*, got"),
        (9092, "expected .*, got 9092"),
        (None, "expected .*, got None"),
        (b"a:1", "expected .*, got b'a:1'"),
    ],
)
def test_wrong_bootstrap_servers_are_named(servers, error):
    with pytest.raises(ValueError, match=error):
        parse_bootstrap(servers)


def test_settings_in_a_mapping_are_rejected():
    with pytest.raises(TypeError, match="pass the settings as arguments"):
        parse_bootstrap({"bootstrap.servers": "localhost:9092"})


def test_back_off_doubles_up_to_its_maximum_with_jitter():
    low, middle, high = (Backoff(0.1, 1.0, lambda value=value: value) for value in (0.0, 0.5, 1.0))
    assert [round(middle.delay_s(failures), 6) for failures in range(7)] == [0, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert low.delay_s(3) == pytest.approx(0.32) and high.delay_s(3) == pytest.approx(0.48)
    assert middle.delay_s(10**9) == 1.0
    assert Backoff(2.0, 1.0, lambda: 0.5).delay_s(5) == 2.0
