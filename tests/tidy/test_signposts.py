"""The page of `kafkalite/state` sends its readers where there is something."""

import re
from pathlib import Path

STATE = Path(__file__).parents[2] / "kafkalite" / "state"
SIGNPOST = re.compile(r"`([a-z_/]*[a-z_])(?:\.([A-Za-z_.]+))?`")


def leads_nowhere(page: str) -> list[str]:
    """The signposts of a page, `module` or `module.name`, behind which there is nothing."""
    found = []
    for module, name in SIGNPOST.findall(page):
        path = STATE / f"{module}.py"
        last = name.rsplit(".", 1)[-1]
        if not path.exists() or (last and re.search(rf"\b{last}\b", path.read_text()) is None):
            found.append(f"{module}.{name}" if name else module)
    return found


def test_every_signpost_leads_somewhere() -> None:
    page = (STATE / "README.md").read_text()
    assert leads_nowhere(page[page.index("## Where is") :]) == []


def test_one_that_leads_nowhere_is_seen() -> None:
    assert leads_nowhere(
        "`groups/classic/join` `classic_joyns` `groups/classic/members.validate_member` `groups/classic/members.refuse`"
    ) == [
        "classic_joyns",
        "groups/classic/members.refuse",
    ]
