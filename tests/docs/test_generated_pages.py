"""The generated parts of the pages are those that the code gives now."""

from pathlib import Path

import pytest

from agentd.cli import COMMANDS
from agentd.config import key_text
from agentd.config.keys import all_keys
from agentkit.cli import cli
from scripts.gen_docs import DOCS, PARTS, render

PAGES = sorted(DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_is_up_to_date(page: Path) -> None:
    """`make docs` writes it anew."""
    text = page.read_text(encoding="utf-8")
    assert render(text) == text


def test_every_command_has_its_section() -> None:
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    for name in cli.commands:
        assert f"## `agentkit {name}`" in text
        for parameter in cli.commands[name].params:
            assert all(option in text for option in parameter.opts if option.startswith("--"))


def test_every_setting_has_its_row() -> None:
    """A section that is itself a list has a heading, and rows for the keys of its items."""
    text = (DOCS / "agentd-config.md").read_text(encoding="utf-8")
    keys = [key_text(key.path) for key in all_keys()]
    assert [key for key in keys if f"| `{key}` |" not in text and f"### {key}\n" not in text] == []
    for name in (*COMMANDS, "inspect export", "memory set"):
        assert f"## `agentd {name}`" in text


def test_part_that_nobody_generates_is_an_error() -> None:
    with pytest.raises(KeyError):
        render("<!-- generated: nothing -->\n<!-- end -->\n")
    assert render("<!-- generated: exit-codes -->\nold\n<!-- end -->").count("| 130 |") == 1
    assert set(PARTS) == {"commands", "exit-codes", "agentd-commands", "agentd-exit-codes", "agentd-settings"}
