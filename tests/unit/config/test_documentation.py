"""docs/configuration.md has the content of the tables."""

from pathlib import Path

from kafkalite.config.definitions import BROKER_KEYS, TOPIC_KEYS
from kafkalite.config.keys import PROVIDERS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "configuration.md"
MARK = "<!-- keys -->\n"
IN_A_FILE = {PROVIDERS: "honoured in a file, else refused"}


def markdown() -> str:
    """Return every key as tables in Markdown, for the documentation."""
    lines = []
    for title, keys in (("Broker", BROKER_KEYS), ("Topic", TOPIC_KEYS)):
        lines += [f"## {title}", "", "| key | type | default | here | meaning |", "|---|---|---|---|---|"]
        for key in keys.values():
            default = key.text(key.default)
            shown = "" if default is None else f"`{default}`"
            support = IN_A_FILE.get(key.name) or key.support.name.lower().replace("_", " ")
            lines.append(f"| `{key.name}` | {key.type.name.lower()} | {shown} | {support} | {key.doc} |")
        lines.append("")
    return "\n".join(lines)


def test_configuration_page_lists_all_keys() -> None:
    """Bring it up to date: python -m tests.unit.config.test_documentation."""
    assert PAGE.read_text().partition(MARK)[2] == markdown()


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text().partition(MARK)[0] + MARK + markdown())
