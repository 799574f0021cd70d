"""docs/configuration.md says what the tables say."""

from pathlib import Path

from kafkalite.config.definitions import markdown

PAGE = Path(__file__).resolve().parents[3] / "docs" / "configuration.md"
MARK = "<!-- keys -->\n"


def test_configuration_page_lists_all_keys() -> None:
    """Bring it up to date: python -m tests.unit.config.test_documentation."""
    assert PAGE.read_text().partition(MARK)[2] == markdown()


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text().partition(MARK)[0] + MARK + markdown())
