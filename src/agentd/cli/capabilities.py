"""`agentd capabilities`: what this release can do. Touches nothing but, where one is named, the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agentd.cli.configured import FLAGS, Configured, settings

if TYPE_CHECKING:
    from agentd.config import Settings


@click.command(cls=Configured, short_help="List tools and who may use them, stores, dialects, events.")
@click.option("--json", "as_json", is_flag=True, help="JSON, for programs; tools with their schemas.")
@click.pass_context
def command(ctx: click.Context, files: tuple[str, ...], as_json: bool) -> None:
    """List what there is: the tools that a model is offered and the roles whose messages may use them, the stores, the
    dialects that models are spoken to in, and the names of events. Nothing is started.

    With a configuration, the tools are those that it leaves. Tools of MCP servers are not among them: what a server
    offers, it tells once it runs.
    """
    found = settings(ctx, files) if files or ctx.meta[FLAGS] else None
    from agentkit.core.contracts.errors import MissingExtraError

    try:
        told = capabilities(found)
    except MissingExtraError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        import json

        click.echo(json.dumps(told, ensure_ascii=False, indent=2))
    else:
        click.echo(as_text(told), nl=False)


def capabilities(found: Settings | None = None) -> dict[str, Any]:
    """What there is, as plain JSON. `found`: what narrows the grants; None: as the roles have them."""
    from agentd.runtime.dialects import DIALECTS
    from agentd.runtime.events import NAMES
    from agentd.runtime.tools.grants import BY_ROLE
    from agentkit import __version__

    return {
        "version": __version__,
        "roles": list(BY_ROLE),
        "tools": _tools(found),
        "servers": _servers(found),
        "stores": _stores(),
        "dialects": sorted(DIALECTS),
        "events": sorted(NAMES),
    }


def _tools(found: Settings | None) -> list[dict[str, Any]]:
    from agentd.runtime.patterns import matches
    from agentd.runtime.tools.grants import BY_ROLE, is_granted
    from agentd.runtime.tools.internal import internal_tools
    from agentd.runtime.tools.names import wire_names

    tools = internal_tools()
    wires = wire_names([tool.name for tool in tools])
    told = []
    for tool in tools:
        if found is None:
            roles = [role for role, patterns in BY_ROLE.items() if matches(tool.name, patterns)]
        else:
            roles = [role for role in BY_ROLE if is_granted(found, role, tool.name, internal=True)]
        told.append(
            {
                "name": tool.name,
                "wire": wires[tool.name],
                "roles": roles,
                "read_only": tool.read_only,
                "description": tool.description,
                "parameters": tool.parameters,
                "output": tool.output,
            }
        )
    return told


def _servers(found: Settings | None) -> list[dict[str, Any]]:
    """The MCP servers that are configured. What they offer, they tell once they run."""
    return [
        {
            "name": server.name,
            "reached": server.url if server.url is not None else " ".join(server.command or ()),
            "required": server.required,
        }
        for server in (found.mcp.servers if found is not None else ())
    ]


def _stores() -> dict[str, Any]:
    """By the kind that the configuration names."""
    from dataclasses import asdict

    from agentkit.state.stores import InMemoryStore, SQLiteStore

    stores = {"memory": InMemoryStore(), "sqlite": SQLiteStore("unopened", exclusive=True)}
    return {kind: asdict(store.capabilities) for kind, store in stores.items()}


def as_text(told: dict[str, Any]) -> str:
    """Capabilities as text, a section for each."""
    width = max(len(tool["name"]) for tool in told["tools"])
    lines = [f"agentd {told['version']}", "", "tools, and whose messages may use them"]
    for tool in told["tools"]:
        roles = tool["roles"]
        who = "all" if roles == told["roles"] else ", ".join(roles) or "nobody"
        lines.append(f"  {tool['name']:<{width}}  {who}{'; reads only' if tool['read_only'] else ''}")
    if told["servers"]:
        lines += ["", "MCP servers"]
    for server in told["servers"]:
        lines.append(f"  {server['name']:<{width}}  {server['reached']}{'; required' if server['required'] else ''}")
    lines += ["", "stores"]
    for kind, can in told["stores"].items():
        lines.append(f"  {kind:<{width}}  {', '.join(name for name, value in can.items() if value is True)}")
    lines += ["", "dialects", f"  {', '.join(told['dialects'])}", "", "events"]
    families: dict[str, list[str]] = {}
    for event in told["events"]:
        family, _, name = event.partition(".")
        families.setdefault(family, []).append(name)
    lines += [f"  {family:<{width}}  {', '.join(names)}" for family, names in families.items()]
    return "".join(f"{line}\n" for line in lines)
