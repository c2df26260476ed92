"""The agent card: what this agent is, and exactly what it can do. Touches its arguments only."""

from __future__ import annotations

from collections.abc import Iterable

from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)

from agentd.config import Settings
from agentd.context.skills import Listed
from agentkit import __version__

REST = "/rest"
"""Where the REST binding is; JSON-RPC is at the root."""
INPUT = ("text/plain", "application/json", "application/octet-stream", "image/*")
OUTPUT = ("text/plain", "application/json")


def extended(card: AgentCard, skills: Iterable[Listed], commands: Iterable[str]) -> AgentCard:
    """What a sender who is known is told beyond the card: the skills that the agent has, and the commands that this
    sender may give."""
    made = AgentCard()
    made.CopyFrom(card)
    for skill in skills:
        text = f"{skill.description} {f'When: {skill.when}' if skill.when else ''}".strip()
        made.skills.append(AgentSkill(id=f"skill:{skill.ref}", name=skill.ref, description=text, tags=["skill"]))
    told = ", ".join(sorted(commands))
    text = f'Answered at once, without a model: one data part {{"agentd": {{"op": NAME}}}}. Ops: {told}.'
    if told:
        made.skills.append(
            AgentSkill(
                id="commands", name="Commands", tags=["command"], input_modes=["application/json"],
                description=text,
            )
        )  # fmt: skip
    return made


def card_of(settings: Settings, base: str) -> AgentCard:
    """The card. `base`: the address of this agent, without a slash at its end."""
    name = settings.agent.name
    interfaces = [
        AgentInterface(url=f"{base}/", protocol_binding="JSONRPC", protocol_version="1.0"),
        AgentInterface(url=f"{base}{REST}", protocol_binding="HTTP+JSON", protocol_version="1.0"),
    ]
    if settings.a2a.compat_0_3:
        interfaces.append(AgentInterface(url=f"{base}/", protocol_binding="JSONRPC", protocol_version="0.3"))
    description = settings.agent.description or f"The agent {name}."
    converse = AgentSkill(
        id="converse", name="Converse", tags=["conversation"], input_modes=INPUT[:2], output_modes=OUTPUT,
        description=f"{description} A contextId is a conversation that it remembers.",
        examples=["What can you do for me?"],
    )  # fmt: skip
    capabilities = AgentCapabilities(
        streaming=True, push_notifications=False, extended_agent_card=settings.a2a.extended_card
    )
    made = AgentCard(
        name=name, description=description, version=__version__, supported_interfaces=interfaces,
        capabilities=capabilities,
        default_input_modes=INPUT, default_output_modes=OUTPUT, skills=[converse],
    )  # fmt: skip
    rules = settings.a2a.principals
    if any(rule.match.bearer is not None for rule in rules):
        scheme = HTTPAuthSecurityScheme(scheme="bearer", description="a token that the operator gave you")
        made.security_schemes["bearer"].CopyFrom(SecurityScheme(http_auth_security_scheme=scheme))
        made.security_requirements.append(SecurityRequirement(schemes={"bearer": StringList()}))
        if any(rule.match.any for rule in rules):
            made.security_requirements.append(SecurityRequirement())
    return made
