"""Templates of a configuration, checked at start. Values only.

Jinja2 is imported where a configuration has a template: most have none, and checking them is not to wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentd.config import Finding, Settings, key_text
from agentd.config.faults import Path

_PARTS = ("standing", "volatile")


def template_rules(settings: Settings) -> Iterator[Finding]:
    """A fault for everything in a template that keeps it from being used: a `Rule` of `agentd.config.load`."""
    for path, source in _sources(settings):
        from .prompt import checked
        from .template import Compiled

        found = checked(source, "standing" if path[-1] == "standing" else "volatile")
        if not isinstance(found, Compiled):
            for one in found:
                line = "" if one.line is None else f"line {one.line} of the text: "
                yield Finding(path, f"{line}{one.found}", one.want)


def template_warnings(settings: Settings) -> Iterator[str]:
    """What is allowed and hardly meant, of templates that `template_rules` has nothing against."""
    for path, source in _sources(settings):
        from .prompt import NO_INSTRUCTION, checked
        from .template import Compiled

        if path[-1] == "standing":
            found = checked(source, "standing")
            if isinstance(found, Compiled) and "instruction" not in found.reads:
                yield f"{key_text(path)}: {NO_INSTRUCTION}"


def _sources(settings: Settings) -> Iterator[tuple[Path, str]]:
    places: list[tuple[Path, object]] = [(("context", "template"), settings.context.template)]
    places += [(("context", "templates", name), one) for name, one in settings.context.templates.items()]
    for place, template in places:
        for part in _PARTS:
            source = getattr(template, part)
            if source is not None:
                yield (*place, part), source
