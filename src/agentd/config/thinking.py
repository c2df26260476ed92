"""The sections about what the agent is and how it thinks: agent, intelligence, context, memory, skills, knowledge,
tools, limits. Values only; defaults are those of the contract unless a comment says why not."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from agentd.config.secrets import HeaderValue, Secret
from agentd.config.section import ALL, Json, Section, ToolNames, Word, Words, frozen_dict, host_name, or_text
from agentd.config.values import ByteSize, Count, Duration, Frequency, Rate, TokenLimit, Tokens

Dialect: TypeAlias = Literal["anthropic", "openai", "gemini", "replay", "fake"]
Share: TypeAlias = Annotated[float, Field(ge=0, lt=1)]
AtLeastOne: TypeAlias = Annotated[int, Field(ge=1)]
Usd: TypeAlias = Annotated[float, Field(gt=0)]
Headers: TypeAlias = Annotated[dict[Word, HeaderValue], AfterValidator(frozen_dict)]

HOSTS: dict[str, Dialect] = {
    "api.anthropic.com": "anthropic",
    "api.openai.com": "openai",
    "generativelanguage.googleapis.com": "gemini",
}
"""Hosts whose dialect needs no naming: the providers' documented base URLs. Any other server may speak any of them."""


class Allowance(Section):
    """What may be spent; at least one figure is set."""

    tokens: Count | None = Field(default=None, description="tokens")
    requests: AtLeastOne | None = Field(default=None, description="model calls")
    usd: Usd | None = Field(default=None, description="US dollars; every model in use needs a price")


class Window(Allowance):
    """What may be spent in each stretch of time, aligned to UTC, weeks from Monday."""

    per: Literal["second", "minute", "hour", "day", "week"] = Field(
        ..., description="length of the window", examples=["day"]
    )
    reset: Duration | None = Field(
        default=None, description="starts this much later than the stretch, e.g. 6h into the day"
    )


class AgentTools(Section):
    """Which tools the model is offered."""

    internal: ToolNames = Field(default=ALL, description="the daemon's own: all, or names, or prefixes that end in *")
    mcp: ToolNames = Field(default=ALL, description="those of MCP servers, likewise")


class Agent(Section):
    """Who the agent is and how it takes up work."""

    name: Word = Field(default_factory=host_name, description="id of the instance in its store; default the host name")
    description: str = Field(default="", description="one sentence for others")
    instruction: str = Field(default="", description="standing orders")
    prompt: str | None = Field(default=None, description="one piece of work to do at start")
    preflight: Literal["never", "auto", "always"] = Field(
        default="auto", description="whether a turn is looked at beforehand"
    )
    preflight_words: Words | None = Field(
        default=None, description="words that ask for a preflight; default the built-in list"
    )
    max_parallel_turns: AtLeastOne = Field(default=4, description="turns that run at once")
    wake_on: Words = Field(default=(), description="kinds of notes that start a turn, such as run and subagent")
    ask_human_fallback: Literal["fail", "wait", "auto"] = Field(default="fail", description="where nobody can answer")
    approval: Words = Field(default=(), description="tools that a human has to approve")
    conversation_budget: Allowance | None = Field(default=None, description="what one conversation may spend")
    tools: AgentTools = AgentTools()


class Budget(Section):
    """What the governor allows for all model calls together."""

    windows: tuple[Window, ...] = Field(default=(), description="figures per stretch of time; all of them hold")
    tactic: Literal["wait", "slow", "degrade", "refuse", "fail"] = Field(
        default="wait", description="when one is used up"
    )
    degrade_model: Word | None = Field(default=None, description="model for the tactic degrade")
    lifetime_tokens: Count | None = Field(default=None, description="tokens over all lives of the instance")


class Endpoint(Section):
    """Where a model is reached. A text is its URL alone."""

    shorthand: ClassVar[str | None] = "url"
    url: Word = Field(
        ..., description="base URL, or what the dialect takes in its place", examples=["replay:chat.jsonl"]
    )
    dialect: Dialect | None = Field(default=None, description="default by the URL")
    model: Word | None = Field(default=None, description="default intelligence.model")
    token: Secret | None = Field(default=None, description="default intelligence.token")


class Intelligence(Section):
    """The model."""

    endpoints: tuple[Annotated[Endpoint, or_text(Endpoint)], ...] = Field(
        ..., min_length=1, description="where the model is reached, tried in order", examples=[["replay:chat.jsonl"]]
    )
    model: Word = Field(..., description="the provider's name of the model", examples=["claude-sonnet-4-6"])
    dialect: Dialect | None = Field(default=None, description="default by endpoint")
    token: Secret | None = Field(default=None, description="credential of the endpoints")
    headers: Headers = Field(default_factory=lambda: frozen_dict({}), description="more request headers")
    timeout: Duration = Field(default=timedelta(seconds=120), description="of one model call")
    max_output: AtLeastOne = Field(default=4096, description="tokens of an answer")
    budget: Budget = Budget()

    def dialect_of(self, endpoint: Endpoint) -> Dialect | None:
        """What this endpoint speaks: as said for it, as said for all, or by its URL; None if that tells nothing."""
        if named := endpoint.dialect or self.dialect:
            return named
        scheme, _, _ = endpoint.url.partition(":")
        if scheme in ("replay", "fake"):
            return "replay" if scheme == "replay" else "fake"
        try:
            return HOSTS.get(urlsplit(endpoint.url).hostname or "")
        except ValueError:  # brackets that hold no address
            return None

    def model_of(self, endpoint: Endpoint) -> str:
        """The model asked at this endpoint."""
        return endpoint.model or self.model


class Plan(Section):
    """The agent's plan."""

    max_items: AtLeastOne = Field(default=32, description="items of a plan")


class Mask(Section):
    """Hiding old tool results from the model."""

    keep_rounds: AtLeastOne = Field(default=6, description="rounds whose results stay")
    min_gain: Tokens = Field(default=TokenLimit(8000, 0.1), description="smallest gain worth a changed prefix")
    exempt: Words = Field(default=("skills.load", "ask_human"), description="tools whose results stay")


class Summarize(Section):
    """The summarising call."""

    model: Word | None = Field(default=None, description="default the main model")
    prompt: str | None = Field(default=None, description="wording of its instruction; default the built-in one")


class Summary(Section):
    """The summary in the prompt."""

    max_tokens: AtLeastOne = Field(default=4096, description="size of its rendering")


class Template(Section):
    """A prompt template. A text is the standing part alone."""

    shorthand: ClassVar[str | None] = "standing"
    standing: str | None = Field(default=None, description="part that seldom changes; default the built-in one")
    volatile: str | None = Field(default=None, description="part behind everything else, made anew for every request")


class Context(Section):
    """How the record of a conversation is kept within the model's window."""

    compact_at: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.7, description="share of the window that starts a reduction"
    )
    compact_to: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.45, description="share that it aims at; below compact_at"
    )
    keep_last: Annotated[int, Field(ge=0)] = Field(default=12, description="messages that are not folded")
    model_window: AtLeastOne | None = Field(
        default=None, description="tokens; default as learned, catalogued, or 128000"
    )
    part_max: Tokens = Field(default=TokenLimit(16_000, 0.2), description="largest part shown whole")
    min_gain: Share = Field(default=0.1, description="share by which a summary has to shrink the request")
    # The contract's default is true; preparing summaries beside the turn is left to a later release, and a default that
    # the release refuses would help nobody.
    background: bool = Field(default=False, description="prepare the summary beside the turn")
    horizon_turns: AtLeastOne = Field(default=12, description="turns over which a changed prefix has to pay")
    keep_user_tokens: Tokens = Field(
        default=TokenLimit(2000, 0.05), description="older user messages that are not folded"
    )
    resident: AtLeastOne = Field(default=256, description="contexts in memory")
    plan: Plan = Plan()
    mask: Mask = Mask()
    summarize: Summarize = Summarize()
    summary: Summary = Summary()
    template: Annotated[Template, or_text(Template)] = Field(
        default=Template(), description="prompt; default the built-in one"
    )
    templates: Annotated[dict[Word, Annotated[Template, or_text(Template)]], AfterValidator(frozen_dict)] = Field(
        default_factory=lambda: frozen_dict({}), description="prompts of subagents, by name"
    )


class Memory(Section):
    """The agent's own key-value memory; the last three count per scope."""

    max_value_bytes: ByteSize = Field(default=65_536, description="of one value")
    max_keys: AtLeastOne = Field(default=10_000, description="keys")
    max_bytes: ByteSize = Field(default=64 << 20, description="of all values")
    list_default_limit: AtLeastOne = Field(default=100, description="keys in a list that names no limit")


class SkillSource(Section):
    """A folder of skills, or an MCP server that has some."""

    path: Word | None = Field(default=None, description="folder")
    server: Word | None = Field(default=None, description="name of an MCP server")
    discover: Literal["extension", "resources", "prompts", "auto"] | None = Field(
        default=None, description="how; default auto: the extension, else resources; for a server"
    )
    filter: Words | None = Field(default=None, description="names, or prefixes that end in *; for a server")


class Skills(Section):
    """Skills that the model may load."""

    sources: tuple[SkillSource, ...] = Field(default=(), description="where they come from")
    reference_prefix: Word = Field(default="@skill:", description="what makes a name in a text a reference")
    max_loaded: AtLeastOne = Field(default=8, description="loaded at once in a context")
    max_bytes: ByteSize = Field(default=32_768, description="of a body; more is cut")


class AutoContext(Section):
    """A search whose answer is given to the model unasked."""

    tool: Word | None = Field(default=None, description="the search tool")
    on: Literal["never", "message", "turn"] = Field(default="never", description="when it is asked")
    top_k: AtLeastOne = Field(default=5, description="hits")
    max_bytes: ByteSize = Field(default=16_384, description="of the answer")


class Knowledge(Section):
    """Knowledge from outside."""

    auto_context: AutoContext = AutoContext()


class Override(Section):
    """An MCP tool that does the work of one of the daemon's own."""

    server: Word = Field(..., description="name of an MCP server", examples=["memory"])
    tool: Word = Field(..., description="its tool", examples=["search_nodes"])
    args: Json = Field(default=None, description="expressions for its arguments")
    result: Json = Field(default=None, description="expression for the result")


def _as_list(value: object) -> object:
    return (value,) if isinstance(value, dict) else value


Steps: TypeAlias = Annotated[
    tuple[Override, ...],
    BeforeValidator(_as_list, json_schema_input_type=Override | list[Override]),
    Field(min_length=1),
]


class MemoryOverrides(Section):
    """Replaced memory tools; several calls run in order, each seeing the results before it."""

    preset: Literal["knowledge-graph"] | None = Field(
        default=None, description="a ready mapping of all four, for the official memory server"
    )
    server: Word | None = Field(default=None, description="name of the MCP server; for a preset")
    get: Steps | None = Field(default=None, description="for memory.get")
    set: Steps | None = Field(default=None, description="for memory.set")
    delete: Steps | None = Field(default=None, description="for memory.delete")
    list: Steps | None = Field(default=None, description="for memory.list")

    @property
    def calls(self) -> dict[str, tuple[Override, ...]]:
        """The replaced tools, by name, and what does their work."""
        given = {"get": self.get, "set": self.set, "delete": self.delete, "list": self.list}
        return {op: steps for op, steps in given.items() if steps}


class Overrides(Section):
    """Tools of the daemon that MCP servers replace."""

    memory: MemoryOverrides = MemoryOverrides()


class Tools(Section):
    """Which tools there are, and for whom."""

    overrides: Overrides = Overrides()
    grants: Annotated[
        dict[Literal["root", "operator", "user", "agent", "anonymous"], ToolNames], AfterValidator(frozen_dict)
    ] = Field(default_factory=lambda: frozen_dict({}), description="tools by role, within what the role may have")
    disabled: Words = Field(default=(), description="tools that nobody has")


class Trigger(Section):
    """Work that comes up by itself, again and again."""

    name: Word = Field(..., description="unique", examples=["morning"])
    every: Duration = Field(..., description="how often, counted from midnight UTC of 1 January 1970", examples=["1h"])
    prompt: Word = Field(..., description="what the agent is told then", examples=["Look at the inbox."])
    context: Word = Field(default="root", description="the conversation in which it is told")


class RunLimits(Section):
    """Limits of one turn or background run."""

    steps: AtLeastOne = Field(default=500, description="model calls")
    tokens: Count = Field(default=2_000_000, description="tokens")
    deadline: Duration = Field(default=timedelta(hours=1), description="time")


class SubagentLimits(Section):
    """Limits of subagents."""

    depth: AtLeastOne = Field(default=3, description="levels")
    breadth: AtLeastOne = Field(default=8, description="of one parent at once")
    total: AtLeastOne = Field(default=64, description="of one root at once")
    rate: Frequency = Field(default=Rate(8, timedelta(seconds=2)), description="starts")


class Limits(Section):
    """Limits of work."""

    run: RunLimits = RunLimits()
    max_runs: AtLeastOne = Field(default=8, description="background runs at once")
    tool_timeout: Duration = Field(default=timedelta(seconds=600), description="of one tool call")
    inbox: AtLeastOne = Field(default=10_000, description="accepted messages that wait")
    requests: Frequency = Field(default=Rate(200, timedelta(seconds=1)), description="requests of one principal")
    waiting_requests: AtLeastOne = Field(default=512, description="streams and waiting requests of one principal")
    subagents: SubagentLimits = SubagentLimits()
