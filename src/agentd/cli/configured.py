"""What every command that reads a configuration shares: `-c`, a flag for each key, and the report of all faults.

Touches the files that are named and the environment.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentd.config import Finding, Settings

FLAGS = "agentd.flags"
"""Where `ctx.meta` holds the flags of keys, as pairs of key and text."""


class Misconfigured(click.ClickException):
    """The configuration has faults: one line each."""

    exit_code = 2

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\nagentd: ".join(faults))


class Configured(click.Command):
    """A command that takes `--section.key VALUE` for every key of the document. Which keys there are is settled when
    the document is read, together with everything else."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        files = click.Option(
            ["-c", "--config", "files"],
            multiple=True,
            metavar="FILE",
            help="A YAML or JSON document; later ones are laid over earlier ones (RFC 7396).",
        )
        self.params.insert(0, files)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest, flags = self._split(ctx, args)
        ctx.meta[FLAGS] = flags
        return super().parse_args(ctx, rest)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[--SECTION.KEY VALUE]..."]

    def _split(self, ctx: click.Context, args: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
        """The command's own arguments, and the flags of keys: those with a dot in their name."""
        own = [option for option in self.get_params(ctx) if isinstance(option, click.Option) and not option.is_flag]
        taking = {name for option in own for name in option.opts}
        rest: list[str] = []
        flags: list[tuple[str, str]] = []
        left = iter(args)
        for word in left:
            name, has_value, value = word.partition("=")
            if word == "--":
                return [*rest, word, *left], flags
            if name.startswith("--") and "." in name:
                given = value if has_value else next(left, None)
                if given is None:
                    raise click.UsageError(f"{name} needs a value.", ctx)
                flags.append((name[2:], given))
            else:
                rest.append(word)
                if word in taking:
                    rest += [value for value in [next(left, None)] if value is not None]
        return rest, flags


def settings(ctx: click.Context, files: tuple[str, ...]) -> Settings:
    """The settings of this command line, or Misconfigured with every fault."""
    from agentkit.core.contracts.errors import MissingExtraError

    try:
        from agentd.config import ConfigError, load
    except MissingExtraError as error:
        raise click.ClickException(str(error)) from None
    try:
        return load(files, environ=os.environ, flags=ctx.meta[FLAGS], rules=[_templates])
    except MissingExtraError as error:
        raise click.ClickException(str(error)) from None
    except ConfigError as error:
        raise Misconfigured([str(fault) for fault in error.faults]) from None


def warnings(found: Settings) -> list[str]:
    """What the configuration says and hardly means."""
    if not _has_templates(found):
        return []
    from agentd.context.prompt_rules import template_warnings

    return list(template_warnings(found))


def _templates(found: Settings) -> Iterable[Finding]:
    """The rule about templates, whose language is loaded only where there are any."""
    if not _has_templates(found):
        return ()
    from agentd.context.prompt_rules import template_rules

    return template_rules(found)


def _has_templates(found: Settings) -> bool:
    return bool(found.context.model_fields_set & {"template", "templates"})
