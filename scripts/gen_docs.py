"""Writes the generated parts of the pages in docs/: `make docs`. `--check` writes nothing and fails where one is old.

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`; all other text is written by people.
"""

import re
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
from pydantic import PlainSerializer
from pydantic.fields import FieldInfo

import agentd.cli
import agentkit.cli
from agentd.config.secrets import SecretRef
from agentd.config.section import ALL, Section, alternatives, section_of
from agentd.config.settings import Settings
from agentd.config.values import Address, Rate, TokenLimit, size_text

DOCS = Path(__file__).resolve().parent.parent / "docs"
PART = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def commands(group: click.Group, name: str) -> str:
    """Every command with its help, its arguments and its options, as click has them."""
    root = click.Context(group, info_name=name, **group.context_settings)
    return "\n".join([_command(root, group, 2), *_below(root, group, 2)])


def _below(ctx: click.Context, group: click.Group, level: int) -> Iterator[str]:
    """The commands of a group, those of a group among them one level deeper."""
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if command is None:
            raise LookupError(name)
        below = click.Context(command, info_name=name, parent=ctx)
        yield _command(below, command, level)
        if isinstance(command, click.Group):
            yield from _below(below, command, level + 1)


def exit_codes(epilog: str) -> str:
    """The exit codes, as every help text lists them."""
    rows = re.findall(r"^ +([0-9]+)  (.+)$", epilog, re.MULTILINE)
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


# -- settings of agentd ----------------------------------------------------------------------------------------------

KINDS: dict[Any, str] = {
    bool: "true, false", int: "integer", float: "number", str: "text", timedelta: "duration", Any: "any",
    TokenLimit: "tokens / share", Rate: "rate", Address: "host:port", SecretRef: "secret",
}  # fmt: skip


def settings() -> str:
    """A heading and a table for each section; what stands in lists and mappings has a table below its section's."""
    parts = []
    for name, field in Settings.model_fields.items():
        section, is_list = section_in(field), section_of(field.annotation) is None
        parts.append(f"### {name}\n\n{_sentence(section)}\n\n{_table(section, '' if is_list else name)}")
        places: dict[type[Section], list[str]] = {}
        for path, item in _items(section, f"{name}[]" if is_list else name):
            places.setdefault(item, []).append(f"`{path}`")
        parts += [f"Of {', '.join(paths)}. {_sentence(item)}\n\n{_table(item, '')}" for item, paths in places.items()]
    return "\n".join(parts)


def _table(section: type[Section], prefix: str) -> str:
    rows = "".join(
        f"| `{key}` | {kind} | {default} | {meaning} |\n" for key, kind, default, meaning in _rows(section, prefix)
    )
    return f"| key | value | default | meaning |\n|---|---|---|---|\n{rows}"


def _rows(section: type[Section], prefix: str) -> Iterator[tuple[str, str, str, str]]:
    written = section.model_construct().model_dump(mode="json")
    for name, field in section.model_fields.items():
        key = f"{prefix}.{name}" if prefix else name
        if _is_inlined(field):
            yield from _rows(section_in(field), key)
        else:
            yield key, _kind(field.annotation, field), _default(field, written.get(name)), field.description or ""


def _items(section: type[Section], at: str) -> Iterator[tuple[str, type[Section]]]:
    """Sections with a table of their own: those in lists and mappings, those that may be left out."""
    for name, field in section.model_fields.items():
        path = f"{at}.{name}"
        if _is_inlined(field):
            yield from _items(section_in(field), path)
            continue
        for kind in alternatives(field.annotation):
            inner = section_of(kind) or next((found for arg in get_args(kind) if (found := section_of(arg))), None)
            if inner is not None:
                yield path, inner
                yield from _items(inner, path if section_of(kind) else f"{path}[]")


def _is_inlined(field: FieldInfo) -> bool:
    """Whether it is a section whose keys are written with a dot in the table of the one around it."""
    below = section_of(field.annotation)
    return below is not None and below.shorthand is None and field.default is not None and not field.is_required()


def section_in(field: FieldInfo) -> type[Section]:
    """The section that a field is, or a list of which it is."""
    inner = (section_of(arg) for kind in alternatives(field.annotation) for arg in get_args(kind))
    found = section_of(field.annotation) or next((one for one in inner if one is not None), None)
    if found is None:
        raise TypeError(field.annotation)
    return found


def _kind(annotation: Any, field: FieldInfo | None = None) -> str:
    names = []
    if field is not None and any(isinstance(m, PlainSerializer) and m.func is size_text for m in field.metadata):
        return "bytes"
    for kind in alternatives(annotation):
        origin, args = get_origin(kind), get_args(kind)
        if (section := section_of(kind)) is not None:
            names.append("mapping" if section.shorthand is None else "text or mapping")
        elif origin is Literal:
            names.append(", ".join("true" if arg is True else str(arg) for arg in args))
        elif origin in (tuple, dict):
            names.append(f"list of {_kind(args[0])}" if origin is tuple else f"mapping of {_kind(args[1])}")
        else:
            names.append(KINDS[kind])
    return " or ".join(names) or "null"


def _default(field: FieldInfo, written: Any) -> str:
    if field.is_required():
        return "required"
    if field.default_factory is not None and isinstance(written, str):
        return ""  # differs between machines; the meaning says what it is
    if written in (list(ALL), ALL):
        return "`all`"
    if (
        written is None
        or written in ({}, "")
        or section_of(field.annotation) is not None
        or not isinstance(written, list | dict | str | int | float)
    ):
        return ""
    if isinstance(written, bool):
        return f"`{str(written).lower()}`"
    return f"`[{', '.join(map(str, written))}]`" if isinstance(written, list | tuple) else f"`{written}`"


def _sentence(section: type[Section]) -> str:
    return " ".join((section.__doc__ or "").split())


PARTS: dict[str, Callable[[], str]] = {
    "commands": lambda: commands(agentkit.cli.cli, "agentkit"),
    "exit-codes": lambda: exit_codes(agentkit.cli.EPILOG),
    "agentd-commands": lambda: commands(agentd.cli.cli, "agentd"),
    "agentd-exit-codes": lambda: exit_codes(agentd.cli.EPILOG),
    "agentd-settings": settings,
}


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
