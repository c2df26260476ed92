"""Files, environment and flags into one value; every fault at once, each with its place."""

# ruff: noqa: E501 - a row of a table is a line, however long its message is

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.config import ConfigError, Fault, Settings, document, key_text, load
from agentd.config.faults import NOWHERE
from agentd.config.keys import all_keys, types_at
from agentkit.core.contracts.errors import AgentKitError
from tests.agentd.config.loading import MODEL, everything, faults, said, settings


def test_later_sources_win(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        "context: {keep_last: 1, resident: 1, horizon_turns: 1, compact_at: 0.9}\nagent: {wake_on: [a, b]}\n",
        "context: {resident: 2, horizon_turns: 2, compact_at: null}\nagent: {wake_on: [c]}\n",
        environ={**MODEL, "AGENTD_CONTEXT__HORIZON_TURNS": "3", "AGENTD_CONTEXT__RESIDENT": "3"},
        flags=[("context.resident", "4"), ("context.resident", "5")],
    ).context
    assert (found.keep_last, found.horizon_turns, found.resident, found.compact_at) == (1, 3, 5, 0.7)


def test_lists_are_replaced(tmp_path: Path) -> None:
    assert settings(tmp_path, "agent: {wake_on: [a, b]}\n", "agent: {wake_on: [c]}\n").agent.wake_on == ("c",)


@pytest.mark.parametrize("text", ["", "# nothing\n", "null\n", "{}", "context:\n", "context: null\n", "---\n"])
def test_empty_documents_are_defaults(tmp_path: Path, text: str) -> None:
    assert settings(tmp_path, text) == settings(tmp_path)


def test_settings_are_frozen(tmp_path: Path) -> None:
    found = settings(tmp_path, "intelligence: {headers: {X-Team: desk}}\n")
    with pytest.raises(ValueError, match="frozen"):
        found.context.keep_last = 1
    with pytest.raises(TypeError):
        found.intelligence.headers["X"] = "y"
    assert isinstance(found.agent.wake_on, tuple)


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("agent.name", "010", "010"), ("agent.name", "true", "true"), ("agent.description", "", ""),
        ("agent.description", "{not: yaml", "{not: yaml"), ("agent.wake_on", "[a, 'b c']", ("a", "b c")),
        ("context.compact_at", "5e-1", 0.5), ("context.background", "false", False), ("store.kind", "memory", "memory"),
        ("context.template.standing", "{{ instruction }}", "{{ instruction }}"), ("memory.max_bytes", "1MiB", 1 << 20),
        ("observability.log_level", "error", "error"), ("context.keep_last", "null", 12), ("agent.prompt", "null", None),
    ],
)  # fmt: skip
def test_text_of_variables_and_flags(tmp_path: Path, key: str, text: str, expected: Any) -> None:
    """Text where text is due, else a value of the document; `null` is the default in both."""
    variable = "AGENTD_" + key.upper().replace(".", "__")
    for found in (
        settings(tmp_path, "context: {keep_last: 3}\n", environ={**MODEL, variable: text}),
        settings(tmp_path, "context: {keep_last: 3}\n", flags=[(key, text)]),
    ):
        value: Any = found
        for step in key.split("."):
            value = getattr(value, step)
        assert value == expected


def test_variables_below_a_section_win(tmp_path: Path) -> None:
    environ = {**MODEL, "AGENTD_CONTEXT__KEEP_LAST": "7", "AGENTD_CONTEXT": "{keep_last: 1, resident: 2}"}
    found = settings(tmp_path, environ=environ).context
    assert (found.keep_last, found.resident) == (7, 2)


def test_test_seams_and_other_names_are_not_read(tmp_path: Path) -> None:
    settings(tmp_path, environ={**MODEL, "AGENTD_KILL_AT": "x", "AGENTD_TEST": "1", "AGENTDX": "y", "agentd_x": "z"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("contxt: {}", "1.yaml:1: contxt: an unknown key; did you mean context?"),
        ("contxt: null", "1.yaml:1: contxt: an unknown key; did you mean context?"),
        ("context:\n  compact_att: 1", "1.yaml:2: context.compact_att: an unknown key; did you mean context.compact_at?"),
        ("keep_last: 1", "1.yaml:1: keep_last: an unknown key; did you mean context.keep_last?"),
        ("store: {scope: {team: a}}", "1.yaml:1: store.scope.team: an unknown key; store.scope has org, domain"),
        ("tools: {grants: {xx: []}}", "1.yaml:1: tools.grants.xx: an unknown key; tools.grants has root, operator, user, agent, anonymous"),
        ("workflows: []", "1.yaml:1: workflows: a section that this release does not support; leave it out"),
        ("context: 5", "1.yaml:1: context: a number; expected a mapping"),
        ("agent: {wake_on: a}", "1.yaml:1: agent.wake_on: text; expected a list"),
        ("agent: {wake_on: [1]}", "1.yaml:1: agent.wake_on[0]: 1; expected text"),
        ("agent: {name: 5}", "1.yaml:1: agent.name: 5; expected text"),
        ("agent: {name: ''}", '1.yaml:1: agent.name: ""; expected text that is not empty'),
        ("context: {compact_at: 0}", "1.yaml:1: context.compact_at: 0; expected more than 0.0"),
        ("context: {compact_at: true}", "1.yaml:1: context.compact_at: true; expected a number"),
        ("context: {keep_last: 1.5}", "1.yaml:1: context.keep_last: 1.5; expected an integer"),
        ("context: {keep_last: -1}", "1.yaml:1: context.keep_last: -1; expected at least 0"),
        ("context: {template: [a]}", "1.yaml:1: context.template: a list; expected a mapping"),
        ("store: {kind: redis}", "1.yaml:1: store.kind: \"redis\"; expected one of 'sqlite', 'memory' or 'postgres'"),
        ("limits: {tool_timeout: 60}", "1.yaml:1: limits.tool_timeout: 60; expected a duration with its unit, such as 250ms, 90s, 5m, 1h30m, 30d"),
        ("a2a: {principals: [{match: any, role: user}]}", "1.yaml:1: a2a.principals[0].id: nothing; a value is required here"),
        ("intelligence: {dialect: cohere}", "1.yaml:1: intelligence.dialect: \"cohere\"; expected one of 'anthropic', 'openai', 'gemini', 'replay' or 'fake'"),
    ],
)  # fmt: skip
def test_single_faults(tmp_path: Path, text: str, message: str) -> None:
    assert said(tmp_path, text) == [message]


@pytest.mark.parametrize("word", ["on", "Off", "yes", "True", "010", "0x10", "1_0", "1:30", "~"])
def test_words_of_older_yaml_are_explained(tmp_path: Path, word: str) -> None:
    (message,) = said(tmp_path, f"context: {{keep_last: {word}}}")
    assert "JSON's values" in message


def test_required_keys_are_named() -> None:
    with pytest.raises(ConfigError) as caught:
        load(environ={})
    assert [(key_text(fault.path), fault.origin) for fault in caught.value.faults] == [
        ("intelligence.endpoints", NOWHERE), ("intelligence.model", NOWHERE),
    ]  # fmt: skip
    assert isinstance(caught.value, AgentKitError | ValueError)
    assert str(ConfigError()) == "The configuration cannot be used."


def test_faults_of_all_sources_come_together(tmp_path: Path) -> None:
    """F51: single keys, rules between keys, secrets, syntax, variables and flags in one run."""
    first = "agent: {nam: x}\ncontext:\n  compact_at: 0.4\n  keep_last: no\nintelligence:\n  token: {env: GONE}\n"
    second = (
        "store: {kind: sqlite, kind: memory}\na2a:\n  listen: 0.0.0.0:1\n  principals: [{id: a, role: x, match: any}]\n"
    )
    found = faults(
        tmp_path, first, second, environ={**MODEL, "AGENTD_LIMITS__INBOX": "many", "AGENTD_X": "1"},
        flags=[("context.resident", "[")], whole=False,
    )  # fmt: skip
    assert [(Path(fault.origin.source).name, fault.origin.line, key_text(fault.path)) for fault in found] == [
        ("1.yaml", 1, "agent.nam"),
        ("1.yaml", 3, "context.compact_to"),
        ("1.yaml", 4, "context.keep_last"),
        ("1.yaml", 6, "intelligence.token"),
        ("2.yaml", 1, "store.kind"),
        ("2.yaml", 3, "a2a.listen"),
        ("2.yaml", 4, "a2a.principals[0].role"),
        ("AGENTD_X", None, "x"),
        ("AGENTD_LIMITS__INBOX", None, "limits.inbox"),
        ("--context.resident", None, "context.resident"),
    ]


def test_a_broken_file_hides_nothing_else(tmp_path: Path) -> None:
    """What could not be read is not also missing, and what was read is judged all the same."""
    found = faults(tmp_path, "a: [", "context: {keep_last: x}", environ={"AGENTD_INTELLIGENCE__MODEL": "m"})
    assert [(Path(fault.origin.source).name, key_text(fault.path)) for fault in found] == [
        ("1.yaml", ""), ("2.yaml", "context.keep_last"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["gone.yaml", "", "a\0b", "."])
def test_files_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load([f"{tmp_path}/{name}"], environ={})
    assert "cannot be read" in str(caught.value)


@pytest.mark.parametrize(
    ("environ", "flags", "message"),
    [
        ({"AGENTD_CONTEXT__KEEP_LAST": ""}, [], "context.keep_last: nothing; give a value"),
        ({"AGENTD_CONTEXT__KEEP_LAST": "1", "AGENTD_context__keep_last": "2"}, [], "also given as AGENTD_CONTEXT__KEEP_LAST"),
        ({"AGENTD_": "1"}, [], "AGENTD_: an unknown key"),
        ({"AGENTD_AGENT__NAME": "\udcff"}, [], "agent.name: bytes that are not UTF-8"),
        ({}, [("context.", "1")], "an unknown key"),
        ({}, [("context.keep_last", "{")], "not YAML"),
        ({}, [("agent.name.x", "1")], "expected text"),
        ({}, [("x" * 500 + ".y", "1")], "an unknown key"),
    ],
)  # fmt: skip
def test_faults_of_variables_and_flags(
    tmp_path: Path, environ: dict[str, str], flags: list[tuple[str, str]], message: str
) -> None:
    (found,) = faults(tmp_path, environ={**MODEL, **environ}, flags=flags)
    assert message in str(found)
    assert len(str(found)) < 600


# -- laws --------------------------------------------------------------------------------------------------------------

NUMBERS = [
    key.path
    for key in all_keys()
    if types_at(key.path) == (int,) and key.field.default is not None and "bytes" not in str(key.path[-1])
]


@given(st.sampled_from(NUMBERS), st.lists(st.integers(1, 10**6) | st.none(), min_size=4, max_size=4))
def test_precedence(tmp_path_factory: pytest.TempPathFactory, path: tuple[str, ...], given_: list[int | None]) -> None:
    """For any key and any of the sources given: the last of two files, environment and flag holds, else the default."""
    folder = tmp_path_factory.mktemp("files")
    first, second, variable, flag = given_
    texts = ["" if value is None else json.dumps(_at(path, value)) for value in (first, second)]
    environ = {} if variable is None else {"AGENTD_" + "__".join(path).upper(): str(variable)}
    flags = [] if flag is None else [(".".join(path), str(flag))]
    found: Any = settings(folder, *texts, environ={**MODEL, **environ}, flags=flags)
    default = next(key.field.default for key in all_keys() if key.path == path)
    for step in path:
        found = getattr(found, step)
    assert found == next((value for value in (flag, variable, second, first) if value is not None), default)


def _at(path: tuple[str, ...], value: Any) -> Any:
    for step in reversed(path):
        value = {step: value}
    return value


def outcome(file: Path) -> Settings | tuple[Fault, ...]:
    try:
        return load([file], environ=MODEL, release=everything)
    except ConfigError as error:
        return error.faults


SCALARS = st.sampled_from(
    ["on", "5", "x", "''", "[a]", "{env: A}", "{a: b}", "1e3", "-1", "null", "*a", "&a 1", "0.5", "2s"]
)
LINES = st.builds(
    lambda path, scalar: f"{path}: {scalar}",
    st.sampled_from([f"{'.'.join(map(str, key.path[:1]))}" for key in all_keys()])
    | st.sampled_from([f"  {key.path[-1]}" for key in all_keys()])
    | st.text("abc:{}[] \n#&*", max_size=8),
    SCALARS | st.just(""),
)


@given(st.binary(max_size=100) | st.lists(LINES, max_size=12).map(lambda lines: "\n".join(lines).encode("utf-8")))
def test_any_document_loads_or_is_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """Whatever the file holds, ConfigError is the only error, and it names at least one fault."""
    file = tmp_path_factory.mktemp("files") / "a.yaml"
    file.write_bytes(data)
    assert outcome(file)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**20) | st.floats(allow_nan=False) | st.text(max_size=5)
    | st.sampled_from(["any", "off", "keep", "5s", "10 %", "a:1", "http://x"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from([str(step) for key in all_keys() for step in key.path] + ["id", "match", "role", "url", "env", "per", "usd"]), inner, max_size=5),
    max_leaves=20,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(list(Settings.model_fields)), JUNK, max_size=6))
def test_any_tree_loads_or_is_refused(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    file = tmp_path_factory.mktemp("files") / "a.json"
    file.write_text(json.dumps(value))
    found = outcome(file)
    if isinstance(found, Settings):
        assert settings(file.parent, json.dumps(document(found)), environ={}) == found
    else:
        assert found
        assert all("\n" not in str(fault) for fault in found)
