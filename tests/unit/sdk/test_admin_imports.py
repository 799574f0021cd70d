"""A program imports the messages of the requests that it sends, not those of the whole administration."""

import subprocess
import sys

PROGRAM = """
import sys
from kafkalite_sdk import Admin
admin = Admin("localhost:9092")
assert admin.topics is admin.topics
messages = "kafkalite.protocol.messages."
print(*sorted(name.removeprefix(messages) for name in sys.modules if name.startswith(messages)))
"""


def test_topics_import_no_messages_of_other_resources() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"api_versions", "metadata"}
