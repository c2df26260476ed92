"""The sections about where the daemon stands and who reaches it: mcp, store, lifecycle, a2a, interface, observability,
security. Values only."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from agentd.config.secrets import Secret
from agentd.config.section import Section, Word, Words, frozen_dict
from agentd.config.thinking import AtLeastOne, Headers, Window
from agentd.config.values import Address, ByteSize, Duration, DurationOrZero, HostPort, Keep, Listen


class Server(Section):
    """An MCP server: a child process or a URL."""

    name: Word = Field(..., description="prefix of its tools where names collide", examples=["memory"])
    command: Words | None = Field(default=None, min_length=1, description="program and arguments")
    url: Word | None = Field(default=None, description="address of a server that runs already")
    env: Headers = Field(default_factory=lambda: frozen_dict({}), description="variables of the child process")
    headers: Headers = Field(default_factory=lambda: frozen_dict({}), description="request headers")
    required: bool = Field(default=False, description="whether the daemon ends without it")
    timeout: Duration = Field(default=timedelta(seconds=60), description="of one request")


class Mcp(Section):
    """Tools, prompts and resources of others."""

    servers: tuple[Server, ...] = Field(default=(), description="MCP servers")


class StoreScope(Section):
    """Whose data the store keeps apart."""

    org: Word | None = Field(default=None, description="organisation")
    domain: Word | None = Field(default=None, description="domain within it")


class Lease(Section):
    """Ownership of the store."""

    ttl: Duration = Field(default=timedelta(seconds=15), description="silence after which another process takes over")


class Retention(Section):
    """How long what is finished stays; `keep` is for ever."""

    contexts: Keep = Field(default=None, description="closed conversations, with tasks and artifacts")
    tasks: Keep = Field(default=None, description="finished tasks")
    runs: Keep = Field(default=None, description="finished runs")


class Store(Section):
    """Where everything durable is kept."""

    kind: Literal["sqlite", "memory", "postgres"] = Field(
        default="sqlite", description="memory forgets, and has to be named"
    )
    prefix: Word = Field(default="agentd", description="first part of every key")
    path: Word | None = Field(default=None, description="folder; default agentd/NAME in the user's state folder")
    scope: StoreScope = StoreScope()
    on_error: Literal["halt", "degrade"] = Field(default="halt", description="when the store fails for good")
    min_free: ByteSize = Field(default=256_000_000, description="free disk space below which new work is refused")
    timeout: Duration = Field(default=timedelta(seconds=10), description="of one operation")
    lease: Lease = Lease()
    retention: Retention = Retention()


class Lifecycle(Section):
    """When the process ends."""

    run_until: Literal["auto", "idle", "drained"] = Field(
        default="auto", description="auto: idle if there is only a prompt"
    )
    idle_grace: DurationOrZero = Field(default=timedelta(seconds=5), description="idleness that ends it")
    drain_timeout: DurationOrZero = Field(default=timedelta(seconds=25), description="for work in flight at the end")


class Tls(Section):
    """Certificate of the listener."""

    cert: Word = Field(..., description="file with the chain, PEM", examples=["cert.pem"])
    key: Secret = Field(..., description="its key, PEM", examples=[{"file": "key.pem"}])


class Match(Section):
    """What tells a principal; exactly one key, or the text any."""

    bearer: Secret | None = Field(default=None, description="token of the Authorization header")
    subject: Word | None = Field(default=None, description="subject that the transport proved")
    san: Word | None = Field(default=None, description="name in the client's certificate")
    any: Literal[True] | None = Field(default=None, description="everybody else")


def _match(value: object) -> object:
    return {"any": True} if value == "any" else value


Matched: TypeAlias = Annotated[Match, BeforeValidator(_match, json_schema_input_type=Literal["any"] | Match)]


class Principal(Section):
    """A rule that says who speaks."""

    id: Word = Field(..., description="unique", examples=["someone"])
    match: Matched = Field(..., description="how it is told", examples=["any"])
    role: Literal["operator", "user", "agent", "anonymous"] = Field(
        default=..., description="what it may", examples=["anonymous"]
    )
    quota: Window | None = Field(default=None, description="what it may spend")


class Peer(Section):
    """Another agent."""

    name: Word = Field(..., description="how this agent calls it", examples=["peer"])
    url: Word = Field(..., description="its address", examples=["http://localhost"])
    token: Secret | None = Field(default=None, description="credential")


class Push(Section):
    """Notifications to others."""

    enabled: bool = Field(default=False, description="whether clients may ask for them")


class A2a(Section):
    """The A2A protocol."""

    listen: Listen = Field(default=None, description="host:port, or off")
    url: Word | None = Field(default=None, description="address in the card, where others reach it by another")
    tls: Tls | None = Field(default=None, description="certificate; default none")
    principals: tuple[Principal, ...] = Field(
        default=(), description="rules, the first that matches holds; none: loopback only"
    )
    peers: tuple[Peer, ...] = Field(default=(), description="agents that work can be handed to")
    push: Push = Push()
    compat_0_3: bool = Field(default=True, description="serve version 0.3 of the protocol too")
    extended_card: bool = Field(default=False, description="serve the extended card")
    scope: Literal["instance", "principal"] = Field(
        default="instance", description="whether principals share a memory, or each has its own"
    )
    conversation_ttl: Duration = Field(default=timedelta(days=30), description="idleness that closes a conversation")


class Interface(Section):
    """The inspector."""

    enabled: bool = Field(default=False, description="whether it is served")
    listen: HostPort = Field(default=Address("127.0.0.1", 8420), description="host:port")
    debug: bool = Field(default=False, description="show requests as sent")
    origins: Words = Field(default=(), description="foreign origins that may read it")


class Observability(Section):
    """Logs, metrics, events."""

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="least level that is logged"
    )
    log_content: bool = Field(default=False, description="log contents, keys and arguments too")
    metrics_addr: Listen = Field(default=None, description="host:port, or off")
    events_ring: AtLeastOne = Field(default=1024, description="events kept for readers")
    otel: Literal["off", "on"] = Field(default="off", description="spans for OpenTelemetry")


class Security(Section):
    """Doors that are shut by default."""

    allow_insecure_listen: bool = Field(default=False, description="listen off loopback without TLS or principals")
    max_body: ByteSize = Field(default=4 << 20, description="of a request")
