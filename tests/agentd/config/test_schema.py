"""The generated schema, and that settings written out read back as themselves."""

# ruff: noqa: E501 - a row of a table is a line, however long its message is

import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from agentd.config import document, json_schema
from tests.agentd.config.loading import MODEL, settings

FULL = """
agent: {name: a, wake_on: [x], tools: {internal: all, mcp: [a*]}, conversation_budget: {usd: 1.5, tokens: 2M}}
intelligence:
  endpoints: ["replay:x", {url: "http://localhost:1", dialect: openai, token: {env: KEY}}]
  model: claude-sonnet-4-6
  token: {env: KEY}
  headers: {X-Api-Key: {env: KEY}, X-Team: desk}
  timeout: 90s
  budget: {windows: [{per: day, usd: 3, reset: 6h}], tactic: refuse}
context: {part_max: 8000, keep_user_tokens: 5 %, template: hello, templates: {a: {standing: b}}}
memory: {max_bytes: 1GiB, max_value_bytes: 5000}
skills: {sources: [{path: a}, {server: m, filter: [x*]}]}
mcp: {servers: [{name: m, command: [a, b], env: {A: b, SECRET: {env: KEY}}}]}
tools:
  grants: {user: [plan.*], agent: all}
  overrides: {memory: {get: {server: m, tool: t, args: {a: [1, null]}}, set: [{server: m, tool: a}, {server: m, tool: b}]}}
limits: {subagents: {rate: 3/1m}}
store: {retention: {contexts: 30d}}
a2a:
  listen: 0.0.0.0:1
  tls: {cert: c, key: {env: KEY}}
  principals: [{id: a, match: {bearer: {env: KEY}}, role: user, quota: {per: hour, requests: 3}}, {id: b, match: any, role: anonymous}]
"""
ENVIRON = {"KEY": "hush"}


def valid(value: Any) -> bool:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    return bool(jsonschema.Draft202012Validator(json_schema()).is_valid(value))


@pytest.mark.parametrize("text", ["intelligence: {endpoints: ['replay:x'], model: m}", FULL])
def test_settings_written_out_read_back(tmp_path: Path, text: str) -> None:
    found = settings(tmp_path, text, environ=ENVIRON)
    written = document(found)
    assert valid(written)
    again = settings(tmp_path, json.dumps(written), environ=ENVIRON)
    assert again == found
    assert document(again) == written


def test_schema_accepts_what_loads_and_every_default() -> None:
    import yaml  # type: ignore[import-untyped]

    assert valid(yaml.safe_load(FULL))
    schema = json_schema()
    for section in schema["$defs"].values():
        for name, part in section.get("properties", {}).items():
            if "default" in part:
                checker = jsonschema.Draft202012Validator({**part, "$defs": schema["$defs"]})
                assert checker.is_valid(part["default"]), (section.get("title"), name, part)


@pytest.mark.parametrize(
    "change",
    [
        {"contxt": {}}, {"context": {"compact_at": 0}}, {"context": {"keep_last": "x"}}, {"limits": {"tool_timeout": 60}},
        {"limits": {"tool_timeout": "60"}}, {"store": {"kind": "redis"}}, {"intelligence": {"endpoints": [], "model": "m"}},
        {"intelligence": {"endpoints": ["x"], "model": "m", "token": "hush"}}, {"tools": {"grants": {"guest": []}}},
        {"intelligence": {"endpoints": ["x"], "model": "m", "token": {"vault": "x"}}},
    ],
)  # fmt: skip
def test_schema_refuses_what_does_not_load(tmp_path: Path, change: dict[str, Any]) -> None:
    base = {"intelligence": {"endpoints": ["replay:x"], "model": "m"}}
    assert valid(base)
    assert not valid({**base, **change})
    with pytest.raises(ValueError, match=r"\w"):
        settings(tmp_path, json.dumps({**base, **change}), environ={})


def test_schema_knows_no_secret(tmp_path: Path) -> None:
    settings(tmp_path, FULL, environ=ENVIRON)
    assert "hush" not in json.dumps(json_schema())
    assert MODEL["AGENTD_INTELLIGENCE__MODEL"] not in json.dumps(json_schema()["$defs"]["Context"])
