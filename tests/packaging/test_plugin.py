"""The shape of the shipped pytest plugin: cheap to load, legal and unique topic names. test_dist.py uses it."""

import subprocess
import sys

from kafkalite.testing.plugin import TOPIC_NAME_MAX, topic_name


def test_loading_the_plugin_does_not_import_the_broker() -> None:
    code = (
        "import sys, pytest, kafkalite.testing.plugin as _; "
        "print(sorted(m for m in sys.modules if m.split('.')[0] in {'kafkalite', 'uvloop', 'aiozk'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "['kafkalite', 'kafkalite.testing', 'kafkalite.testing.plugin']"


def test_topic_names_are_legal_and_unique() -> None:
    assert topic_name("test_a[x.y/z]", 7) == "test_a-x-y-z--7"
    assert len(topic_name("x" * 500, 12345)) == TOPIC_NAME_MAX
    assert topic_name("same", 1) != topic_name("same", 2)
