"""Rules between keys, and what this release refuses by name."""

# ruff: noqa: E501 - a row of a table is a line, however long its message is

from pathlib import Path

import pytest

from agentd.config import Finding, Settings, load
from tests.agentd.config.loading import BASE, MODEL, said, settings

KEY = "{env: KEY}"
ENVIRON = {**MODEL, "KEY": "hush"}
OPEN = "a2a: {listen: '0.0.0.0:80', tls: {cert: c, key: {env: KEY}}, principals: [{id: a, match: any, role: user}]}"


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("context: {compact_to: 0.7}", ["context.compact_to: 0.7; it has to be below context.compact_at, which is 0.7"]),
        ("context: {compact_at: 0.4}", ["context.compact_to: 0.45; it has to be below context.compact_at, which is 0.4"]),
        ("memory: {max_bytes: 1KiB}", ["memory.max_value_bytes: 65536 bytes; it is at most memory.max_bytes, which is 1024 bytes"]),
        ("a2a: {listen: '0.0.0.0:80'}", ["a2a.listen: 0.0.0.0:80, which others can reach, without a2a.tls and without a2a.principals; set them, listen on loopback, or set security.allow_insecure_listen"]),
        ("interface: {enabled: true, listen: '[::]:1'}", ["interface.listen: [::]:1, which others can reach; the inspector has no TLS: listen on loopback, or set security.allow_insecure_listen"]),
        ("a2a: {listen: '127.0.0.1:9'}\nobservability: {metrics_addr: '127.0.0.1:9'}", ["observability.metrics_addr: 127.0.0.1:9, as a2a.listen; every listener has an address of its own"]),
        ("intelligence: {endpoints: ['http://localhost:8080']}", ["intelligence.endpoints[0].url: an endpoint of no known dialect; name intelligence.dialect: only api.anthropic.com, api.openai.com, generativelanguage.googleapis.com, replay: and fake: tell theirs"]),
        ("intelligence: {endpoints: ['https://api.openai.com/v1']}", ["intelligence.endpoints[0].url: an endpoint that asks for a credential, and none is configured; name intelligence.token, or a token of its own: give it as {env: NAME} or {file: PATH}"]),
        ("intelligence: {endpoints: ['ftp://x'], dialect: openai}", ["intelligence.endpoints[0].url: text that is no such URL; an http:// or https:// URL of a host, without user and password"]),
        ("intelligence: {endpoints: ['https://u:hush@api.openai.com']}", ["intelligence.endpoints[0].url: a URL with user or password (not shown); credentials are secrets: give it as {env: NAME} or {file: PATH} as token"]),
        ("intelligence: {model: mystery, budget: {windows: [{per: day, usd: 5}]}}", ["intelligence.budget.windows[0].usd: 5.0 USD, but there is no price for 'mystery', which is intelligence.model; set tokens or requests instead"]),
        ("agent: {conversation_budget: {usd: 5}}\ncontext: {summarize: {model: mystery}}", ["agent.conversation_budget.usd: 5.0 USD, but there is no price for 'mystery', which is context.summarize.model; set tokens or requests instead"]),
        ("a2a: {principals: [{id: a, match: any, role: user, quota: {per: day, usd: 1}}]}\nintelligence: {endpoints: [{url: 'replay:x', model: mystery}]}", ["a2a.principals[0].quota.usd: 1.0 USD, but there is no price for 'mystery', which is intelligence.endpoints[0].model; set tokens or requests instead"]),
        ("intelligence: {budget: {windows: [{per: day}]}}", ["intelligence.budget.windows[0]: a budget without a figure; set tokens, requests or usd"]),
        ("intelligence: {budget: {windows: [{per: hour, tokens: 5, reset: 1h}]}}", ["intelligence.budget.windows[0].reset: 1:00:00; less than a hour"]),
        ("mcp: {servers: [{name: a, url: 'http://x'}, {name: a, url: 'http://y'}]}", ["mcp.servers[1].name: 'a', which item [0] has; it is unique in its list"]),
        ("mcp: {servers: [{name: a}]}", ["mcp.servers[0]: neither command nor url; a server has one of the two"]),
        ("mcp: {servers: [{name: a, command: [x], url: 'http://x'}]}", ["mcp.servers[0]: both command and url; a server has one of the two"]),
        ("mcp: {servers: [{name: a, command: [x], headers: {a: b}}]}", ["mcp.servers[0].headers: headers for a child process; it takes env"]),
        ("mcp: {servers: [{name: a, url: 'http://x', env: {a: b}}]}", ["mcp.servers[0].env: variables for a URL; it takes headers"]),
        ("skills: {sources: [{}]}", ["skills.sources[0]: neither path nor server; a source has one of the two"]),
        ("skills: {sources: [{server: a}]}", ["skills.sources[0].server: 'a'; name a server of mcp.servers"]),
        ("skills: {sources: [{path: a, discover: auto}]}", ["skills.sources[0].discover: it for a folder; it is for servers"]),
        ("tools: {overrides: {memory: {get: {server: a, tool: b}}}}", ["tools.overrides.memory.get[0].server: 'a'; name a server of mcp.servers"]),
        ("mcp: {servers: [{name: a, url: 'http://x'}]}\ntools: {disabled: [memory.get], overrides: {memory: {get: {server: a, tool: b}}}}", ["tools.overrides.memory.get: an override of memory.get, which tools.disabled names; do one of the two"]),
        ("intelligence: {headers: {Authorization: hush, X-Team: desk}}", ["intelligence.headers.Authorization: a literal (not shown); it carries a secret: give it as {env: NAME} or {file: PATH}"]),
        ("mcp: {servers: [{name: a, command: [x], env: {API_TOKEN: hush}}]}", ["mcp.servers[0].env.API_TOKEN: a literal (not shown); it carries a secret: give it as {env: NAME} or {file: PATH}"]),
        ("store: {kind: memory, path: x}", ["store.path: a folder for the memory store; it has none"]),
        ("a2a: {principals: [{id: a, match: {}, role: user}]}", ["a2a.principals[0].match: nothing; a rule matches by one of bearer, subject, san, any"]),
        ("a2a: {principals: [{id: a, match: {subject: x, san: y}, role: user}]}", ["a2a.principals[0].match: subject and san; a rule matches by one of bearer, subject, san, any"]),
    ],
)  # fmt: skip
def test_rules_between_keys(tmp_path: Path, text: str, messages: list[str]) -> None:
    environ = {"KEY": "hush"}
    found = said(tmp_path, BASE, text, environ=environ)
    assert [message.split(": ", 1)[1] for message in found] == messages


@pytest.mark.parametrize(
    "text",
    [
        "context: {compact_at: 1, compact_to: 0.99}",
        "a2a: {listen: '[::1]:80'}",
        "a2a: {listen: '0.0.0.0:80'}\nsecurity: {allow_insecure_listen: true}",
        OPEN,
        "interface: {listen: '0.0.0.0:1'}",
        "a2a: {listen: '127.0.0.1:0'}\nobservability: {metrics_addr: '127.0.0.1:0'}",
        "intelligence: {endpoints: [{url: 'https://api.anthropic.com', token: {env: KEY}}, {url: 'http://localhost:1/v1', dialect: openai}]}",
        "intelligence: {endpoints: ['https://api.openai.com/v1'], headers: {Authorization: {env: KEY}}}",
        "agent: {conversation_budget: {usd: 0.5}}",
        "agent: {conversation_budget: {tokens: 2M}}\nintelligence: {model: mystery}",
        "intelligence: {budget: {windows: [{per: week, usd: 5, reset: 6d}, {per: second, requests: 2}]}}",
        "intelligence: {headers: {Authorization: {env: KEY}, X-Team: desk}}",
        "mcp: {servers: [{name: a, command: [x], env: {HOME: /tmp, KEY: {env: KEY}}}]}\nskills: {sources: [{server: a, filter: [b*]}, {path: c}]}",
        "a2a: {principals: [{id: a, match: {bearer: {env: KEY}}, role: operator}, {id: b, match: any, role: anonymous}]}",
        "context: {template: 'You are {{ instance.name }}.', templates: {sub: {standing: a, volatile: b}}}",
    ],
)  # fmt: skip
def test_what_the_rules_allow(tmp_path: Path, text: str) -> None:
    settings(tmp_path, text, environ=ENVIRON)


def test_a_rule_is_silent_where_its_key_is_faulty(tmp_path: Path) -> None:
    found = said(tmp_path, "context: {compact_at: x, compact_to: 0.9}\nagent: {conversation_budget: {usd: cheap}}")
    assert [message.split(": ")[1] for message in found] == ["context.compact_at", "agent.conversation_budget.usd"]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("intelligence: {budget: {tactic: slow}}", "intelligence.budget.tactic"),
        ("intelligence: {budget: {degrade_model: m}}", "intelligence.budget.degrade_model"),
        ("context: {background: true}", "context.background"),
        ("knowledge: {auto_context: {tool: search}}", "knowledge.auto_context.tool"),
        ("knowledge: {auto_context: {on: turn}}", "knowledge.auto_context.on"),
        ("store: {kind: postgres}", "store.kind"),
        (
            "a2a: {listen: '127.0.0.1:0', principals: [{id: a, match: {subject: x}, role: user}]}",
            "a2a.principals[0].match.subject",
        ),
        ("a2a: {peers: [{name: a, url: 'http://x'}]}", "a2a.peers"),
        ("a2a: {push: {enabled: true}}", "a2a.push.enabled"),
        ("a2a: {principals: [{id: a, match: {san: x}, role: user}]}", "a2a.principals[0].match.san"),
        ("interface: {enabled: true}", "interface.enabled"),
        ("observability: {metrics_addr: '127.0.0.1:80'}", "observability.metrics_addr"),
        ("observability: {otel: on}", "observability.otel"),
    ],
)
def test_unsupported_settings_are_refused_by_name(tmp_path: Path, text: str, key: str) -> None:
    base = "intelligence: {endpoints: ['replay:x'], model: m}"
    (message,) = said(tmp_path, base, text, environ={}, whole=False)
    assert f": {key}: a setting that this release does not support; " in message
    assert said(tmp_path, base, text, environ={}) == []


def test_defaults_are_supported(tmp_path: Path) -> None:
    assert said(tmp_path, whole=False) == []


def test_rules_of_other_rooms_join_in(tmp_path: Path) -> None:
    def template(s: Settings) -> list[Finding]:
        return [Finding(("context", "template", "standing"), "a template that does not parse", "close the brace")]

    file = tmp_path / "a.yaml"
    file.write_text("context:\n  template: '{{ x'\n  keep_last: no\n")
    with pytest.raises(ValueError, match="does not parse") as caught:
        load([file], environ=MODEL, rules=[template])
    assert f"{file}:2: context.template.standing: a template that does not parse; close the brace" in str(caught.value)
    assert "keep_last" in str(caught.value)


def test_store_of_a_one_shot_prompt(tmp_path: Path) -> None:
    """A prompt alone writes nothing; the memory store has to be named for anything else."""
    assert settings(tmp_path).store_kind == "sqlite"
    assert settings(tmp_path, "agent: {prompt: hello}").store_kind == "memory"
    assert settings(tmp_path, "agent: {prompt: hello}\nstore: {prefix: a}").store_kind == "sqlite"
    assert settings(tmp_path, "agent: {prompt: hello}\na2a: {listen: '127.0.0.1:1'}").store_kind == "sqlite"
    assert settings(tmp_path, "store: {kind: memory}").store_kind == "memory"


@pytest.mark.parametrize(
    ("name", "environ", "expected"),
    [
        ("desk", {"XDG_STATE_HOME": "/s", "HOME": "/h"}, "/s/agentd/desk"),
        ("desk", {"XDG_STATE_HOME": "relative", "HOME": "/h"}, "/h/.local/state/agentd/desk"),
        ("../x y", {"HOME": "/h"}, "/h/.local/state/agentd/%2E%2E%2Fx%20y"),
    ],
)
def test_state_folder(tmp_path: Path, name: str, environ: dict[str, str], expected: str) -> None:
    assert settings(tmp_path, flags=[("agent.name", name)]).store_folder(environ) == Path(expected)
    assert settings(tmp_path, "store: {path: here}").store_folder(environ) == Path("here")


def test_dialect_and_model_of_an_endpoint(tmp_path: Path) -> None:
    text = "intelligence: {endpoints: ['replay:a', {url: 'http://b', dialect: openai, model: m}, 'https://api.anthropic.com/v1', 'fake:'], headers: {X-Api-Key: {env: KEY}}}"
    model = settings(tmp_path, BASE, text, environ={"KEY": "k"}).intelligence
    assert [model.dialect_of(endpoint) for endpoint in model.endpoints] == ["replay", "openai", "anthropic", "fake"]
    assert [model.model_of(endpoint) for endpoint in model.endpoints][:2] == ["claude-sonnet-4-6", "m"]
