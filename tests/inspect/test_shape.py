"""The JSON of a report: plain, whole, and described in docs/cli.md."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkit.inspect import inspect_transcript
from agentkit.inspect.shape import FORMAT, json_document, to_shape
from agentkit.transcripts import Transcript
from tests.inspect.samples import UNPRICED, compacted, hostile, session

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
MADE: list[Callable[[], Transcript]] = [session, compacted, hostile]


@pytest.mark.parametrize("made", MADE, ids=lambda made: made.__name__)
def test_json_reads_back(made: Callable[[], Transcript]) -> None:
    shape = to_shape([inspect_transcript(made(), source="a.jsonl")])
    for a_line in (False, True):
        text = json_document(shape, a_line=a_line)
        assert json.loads(text) == json.loads(json.dumps(shape))
        text.encode("utf-8")
        assert text.endswith("}\n")
        assert a_line is (text.count("\n") == 1)
    assert shape["format"] == FORMAT


def test_unknown_is_null() -> None:
    (one,) = to_shape([inspect_transcript(session(model=UNPRICED))])["conversations"]
    assert one["cost"] == {"usd": None, "known": False, "priced": 0, "responses": 6, "reasons": ["unknown_model"]}
    assert one["window"] is None
    assert one["recorded_usd"] is None


def test_page_describes_every_key() -> None:
    """Keys of the first level and of `tokens` are rows of their own; deeper ones stand in the row of their parent."""
    table = PAGE.read_text(encoding="utf-8").partition("## The JSON")[2]
    rows = dict(re.findall(r"^\| (`.+`) \| (.+) \|$", table, re.MULTILINE))
    described = {name for names in rows for name in re.findall(r"`([a-z_.]+)`", names)}
    (one,) = to_shape([inspect_transcript(compacted())])["conversations"]
    assert described == {key for key in one if key != "tokens"} | {f"tokens.{key}" for key in one["tokens"]}
    for key, deeper in _nested(one):
        row = next(text for names, text in rows.items() if f"`{key}`" in names)
        if "as `next_request`" not in row:
            assert set(deeper) <= set(re.findall(r"`([a-z_]+)`", row)) | {"total"}, key


def _nested(one: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for key, value in [*one.items(), *[(f"tokens.{k}", v) for k, v in one["tokens"].items()]]:
        if isinstance(value, dict) and key != "tokens":
            yield key, value
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield key, value[0]
