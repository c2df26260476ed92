"""Writes the generated parts of the pages in docs/: `make docs`. `--check` writes nothing and fails where one is old.

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`; all other text is written by people.
"""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from agentkit.cli import EPILOG, cli

DOCS = Path(__file__).resolve().parent.parent / "docs"
PART = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def commands() -> str:
    """Every command with its help, its arguments and its options, as click has them."""
    root = click.Context(cli, info_name="agentkit", **cli.context_settings)
    parts = [_command(root, cli, 2)]
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        if command is None:
            raise LookupError(name)
        parts.append(_command(click.Context(command, info_name=name, parent=root), command, 2))
    return "\n".join(parts)


def exit_codes() -> str:
    """The exit codes, as every help text lists them."""
    rows = re.findall(r"^ +([0-9]+)  (.+)$", EPILOG, re.MULTILINE)
    return "| code | meaning |\n|---|---|\n" + "".join(f"| {code} | {meaning} |\n" for code, meaning in rows)


def _command(ctx: click.Context, command: click.Command, level: int) -> str:
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    lines = [f"{'#' * level} `{ctx.command_path}`", "", "```text", usage, "```", "", *_paragraphs(command.help or "")]
    lines += ["| option | meaning |", "|---|---|"]
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None and record[1]:  # an argument is in the usage line already
            lines.append(f"| `{_cell(record[0])}` | {_cell(record[1])} |")
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        yield " ".join(paragraph.split())
        yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


PARTS: dict[str, Callable[[], str]] = {"commands": commands, "exit-codes": exit_codes}


def render(page: str) -> str:
    """`page` with its generated parts written anew; KeyError for a part that nobody generates."""
    return PART.sub(lambda found: f"{found[1]}\n{PARTS[found[2]]()}\n{found[3]}", page)


def main() -> None:
    """Writes every page that changed, or with `--check` names it and fails."""
    old = []
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        new = render(text)
        if new != text:
            old.append(page)
            if "--check" not in sys.argv:
                page.write_text(new, encoding="utf-8")
    if "--check" in sys.argv and old:
        sys.exit(f"out of date, run `make docs`: {', '.join(str(page.relative_to(DOCS.parent)) for page in old)}")
    print(f"{len(old)} page(s) written" if old else "all pages are up to date")


if __name__ == "__main__":
    main()
