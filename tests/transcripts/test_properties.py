"""Whatever a file holds: values, reports, or the one typed error; never an exception from inside."""

import json
import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentkit.core.contracts.errors import EmptyRequestError, FormatError
from agentkit.core.contracts.validity import ANTHROPIC, OPENAI_CHAT, check, repair
from agentkit.transcripts import FORMATS, Transcript, dumps, loads, to_anthropic, to_openai
from tests.transcripts.samples import LARGE, SAMPLES, sample

KEYS = [
    "action", "agentkit", "args", "arguments", "attachment", "call_id", "cause", "choices", "compactMetadata",
    "content", "data", "error", "extra", "forgotten_event_ids", "function", "history", "id", "image_url",
    "index", "info", "input", "instructions", "isMeta", "isSidechain", "is_error", "kwargs", "lc", "leafUuid",
    "llm", "llm_metrics", "message", "messages", "model_response", "name", "observation", "output",
    "parentUuid", "payload", "refusal", "replacement_history", "request", "response", "role", "sessionId",
    "signature", "source", "status", "subtype", "suite_name", "summary", "system", "text", "thinking",
    "timestamp", "toolUseResult", "tool_call", "tool_call_id", "tool_call_metadata", "tool_calls",
    "tool_use_id", "tools", "traj", "trajectory_format", "type", "usage", "uuid", "values",
]  # fmt: skip
WORDS = [
    "user", "assistant", "system", "tool", "human", "ai", "text", "tool_use", "tool_result", "message",
    "finish", "run", "function_call", "function_call_output", "reasoning", "response_item", "event_msg",
    "token_count", "compacted", "compact_boundary", "session_meta", "attachment", "progress", "condensation",
    "transcript", "end", "remove", "a", "thinking", "image", "document", "compaction", "error", "null",
    "summary", "last-prompt", "{}", "[1]",
]  # fmt: skip
LEAF = (
    st.none()
    | st.booleans()
    | st.integers(-3, 10**20)
    | st.floats(allow_nan=False)
    | st.sampled_from(["", "Error: x", *WORDS])
    | st.text(max_size=8)
)
NAMES = st.sampled_from(KEYS) | st.text(max_size=3)
JSON = st.recursive(
    LEAF,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=7),
    max_leaves=40,
)


def imported(data: bytes | str, format: str | None) -> tuple[Transcript, ...]:
    try:
        return loads(data, format=format)
    except FormatError:
        return ()


def hold_laws(transcripts: tuple[Transcript, ...], data: bytes | str, format: str | None) -> None:
    assert imported(data, format) == transcripts
    for transcript in transcripts:
        assert all(r.index is None or 0 <= r.index < len(transcript.history) for r in transcript.responses)
        assert all(0 <= c.index < len(transcript.history) for c in transcript.compactions)
        for rules in (ANTHROPIC, OPENAI_CHAT):
            prefix = len(transcript.context.prefix.as_messages())
            view = repair(transcript.context.assembled(), rules, prefix=prefix).messages
            assert check(view, rules, prefix=prefix) == ()
    if transcripts:
        assert loads(dumps(transcripts), format="agentkit") == transcripts


def hold_round_trip(transcripts: tuple[Transcript, ...]) -> None:
    """An export imported again exports to the same bytes."""
    for transcript in transcripts:
        for export, format in ((to_anthropic, "anthropic-messages"), (to_openai, "openai-chat")):
            try:
                first = json.dumps(export(transcript), ensure_ascii=False).encode()
            except EmptyRequestError:
                continue
            (again,) = loads(first, format=format)
            assert json.dumps(export(again), ensure_ascii=False).encode() == first


@given(value=JSON, format=st.sampled_from([None, *FORMATS]))
@example(value=[{"role": []}, {"role": {}}], format="openai-chat")
def test_any_document_is_survived(value: Any, format: str | None) -> None:
    """G1."""
    data = json.dumps(value)
    transcripts = imported(data, format)
    hold_laws(transcripts, data, format)
    hold_round_trip(transcripts)


@given(values=st.lists(JSON, max_size=6), format=st.sampled_from([None, *FORMATS]), ends=st.booleans())
def test_any_lines_are_survived(values: list[Any], format: str | None, ends: bool) -> None:
    data = "\n".join(json.dumps(value) for value in values) + "\n" * ends
    transcripts = imported(data, format)
    hold_laws(transcripts, data, format)
    hold_round_trip(transcripts)


@given(data=st.binary(max_size=200), format=st.sampled_from([None, *FORMATS]))
def test_any_bytes_are_survived(data: bytes, format: str | None) -> None:
    hold_laws(imported(data, format), data, format)


def mutated(value: Any, chance: random.Random, edits: list[int]) -> Any:
    """`value` with a few parts dropped, doubled, swapped for odd values or moved."""
    if edits[0] and chance.random() < 0.02:
        edits[0] -= 1
        return chance.choice([None, 0, -1.5, "", "x", [], {}, [None], {"type": "new-kind", "n": 1}, True, "\ud800"])
    if isinstance(value, dict):
        items = [(k, mutated(v, chance, edits)) for k, v in value.items()]
        if items and edits[0] and chance.random() < 0.05:
            edits[0] -= 1
            items.pop(chance.randrange(len(items)))
        return dict(items)
    if isinstance(value, list):
        entries = [mutated(v, chance, edits) for v in value]
        if entries and edits[0] and chance.random() < 0.1:
            edits[0] -= 1
            at = chance.randrange(len(entries))
            entries.insert(chance.randrange(len(entries)), entries.pop(at) if chance.random() < 0.5 else entries[at])
        return entries
    return value


@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in LARGE])
@given(seed=st.integers(0, 10**9), edits=st.integers(1, 8))
def test_mutated_samples_are_survived(name: str, seed: int, edits: int) -> None:
    """G1, I2."""
    chance, left = random.Random(seed), [edits]
    text = sample(name).decode()
    if name.endswith(".jsonl"):
        records = mutated([json.loads(line) for line in text.splitlines()], chance, left)
        records = records if isinstance(records, list) else [records]
        data = "\n".join(json.dumps(record) for record in records)
    else:
        data = json.dumps(mutated(json.loads(text), chance, left))
    format = chance.choice([None, name.split("/")[0]])
    transcripts = imported(data, format if format in FORMATS else None)
    hold_laws(transcripts, data, format if format in FORMATS else None)
    hold_round_trip(transcripts)


@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in LARGE])
@given(at=st.floats(0, 1), cut=st.integers(0, 50), junk=st.binary(max_size=4))
def test_damaged_samples_are_survived(name: str, at: float, cut: int, junk: bytes) -> None:
    data = sample(name)
    place = int(at * len(data))
    damaged = data[:place] + junk + data[place + cut :]
    imported(damaged, None)
    hold_laws(imported(damaged[:place], None), damaged[:place], None)
