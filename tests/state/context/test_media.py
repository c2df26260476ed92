"""Images and documents count as their provider counts them, never by the length of their bytes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.tokens import estimate_message_tokens, flat_tokens
from agentkit.core.contracts.types import DocumentBlock, ImageBlock, Message, Usage
from agentkit.state.context import (
    ApproxTokenCounter,
    Calibration,
    CharClassTokenCounter,
    ExactTokenCounter,
    WorkingContext,
)
from agentkit.state.context.media import media_tokens
from agentkit.state.context.model_facts import IMAGES, image_rule

OLD, NEW = "claude-sonnet-4-6", "claude-opus-4-7"


def image(width: int | None, height: int | None, detail: str | None = None) -> ImageBlock:
    return ImageBlock(b"x", "image/png", width, height, detail)


def tokens(model: str, block: ImageBlock | DocumentBlock) -> int:
    return CharClassTokenCounter(model).measure([Message("user", [block])]) - 4


@pytest.mark.parametrize(
    ("model", "width", "height", "expected"),
    [
        (OLD, 200, 200, 64),
        (OLD, 1_000, 1_000, 1_296),
        (OLD, 1_920, 1_080, 1_560),
        (NEW, 1_920, 1_080, 2_691),
        (OLD, 3_840, 2_160, 1_560),
        (NEW, 3_840, 2_160, 4_784),
        ("claude-opus-5-5", 3_840, 2_160, 4_784),
        ("gpt-5.6-sol", 1_024, 1_024, 1_024),
        ("o4-mini", 1_800, 2_400, 2_498),
        ("gpt-4o", 1_024, 1_024, 765),
        ("gpt-4o", 2_048, 4_096, 1_105),
        ("gpt-4o", 512, 512, 255),
        ("gemini-2.5-pro", 600, 400, 258),
        ("gemini-2.5-pro", 1_536, 800, 4 * 258),
        ("gemini-3-pro-preview", 600, 400, 1_120),
    ],
)
def test_n2_published_sizes(model: str, width: int, height: int, expected: int) -> None:
    assert tokens(model, image(width, height)) == expected


def test_patches_under_a_cap_are_the_published_ones() -> None:
    """1800 x 2400 under 1,536 patches: 1,452, before the factor of the model."""
    for model, factor in (("gpt-5-mini", 1.62), ("gpt-4.1-nano", 2.46), ("o4-mini", 1.72)):
        assert tokens(model, image(1_800, 2_400)) == -(-1_452 * round(factor * 100) // 100)


@pytest.mark.parametrize(
    ("model", "base", "tile"),
    [("gpt-4o", 85, 170), ("gpt-4.1", 85, 170), ("gpt-5", 70, 140), ("gpt-5.1", 70, 140), ("o1", 75, 150),
     ("o3", 75, 150), ("gpt-4o-mini", 2_833, 5_667)],
)  # fmt: skip
def test_tiles(model: str, base: int, tile: int) -> None:
    assert tokens(model, image(1_024, 1_024)) == base + 4 * tile
    assert tokens(model, image(1_024, 1_024, "low")) == tokens(model, image(None, None, "low")) == base
    assert tokens(model, image(None, None)) == base + 8 * tile == tokens(model, image(9_000, 3_375))


@pytest.mark.parametrize(
    ("model", "cap"),
    [(OLD, 1_568), (NEW, 4_784), ("gpt-5.4", 2_500), ("gpt-5.5", 10_000), ("gpt-5-mini", round(1_536 * 1.62)),
     ("gemini-3-pro", 1_120)],
)  # fmt: skip
def test_unknown_size_counts_as_the_cap(model: str, cap: int) -> None:
    assert tokens(model, image(None, None)) == tokens(model, image(100, None)) == cap
    assert tokens(model, image(8_000, 8_000)) <= cap


def test_detail() -> None:
    assert tokens("gpt-5.4", image(4_000, 4_000, "original")) == 10_000
    assert tokens("gpt-5.4", image(None, None, "original")) == 10_000
    assert tokens("gpt-5.6-sol", image(4_000, 3_200)) == 125 * 100
    assert tokens("gpt-5.6-sol", image(4_000, 4_000, "low")) == tokens("gpt-5.6-sol", image(None, None, "low")) == 256
    found = {d: tokens("gemini-3-pro", image(600, 400, d)) for d in ("low", "medium", "high", "ultra", None)}
    assert found == {"low": 280, "medium": 560, "high": 1_120, "ultra": 2_240, None: 1_120}


def test_documents_by_page() -> None:
    assert tokens(OLD, DocumentBlock(b"x", "application/pdf", pages=3)) == 3 * 2_333
    assert tokens("gemini-3-pro", DocumentBlock(b"x", "application/pdf", pages=3)) == 3 * 560
    assert tokens("gpt-5.6-sol", DocumentBlock(b"x", "application/pdf", pages=3)) == 3 * 2_000
    assert tokens(OLD, DocumentBlock(b"x", "application/pdf")) == 4 * 2_333
    assert tokens(OLD, DocumentBlock(b"x", "audio/mp3")) == 1_600


def test_pages_may_take_more_and_the_bound_says_so() -> None:
    """A page is 2,333 tokens, and up to 4,600: the bound of a count has room for them, with and without an anchor."""
    pdf = Message("user", [DocumentBlock(b"x", "application/pdf", pages=10)])
    context = WorkingContext(messages=[pdf], token_counter=CharClassTokenCounter(OLD))
    count = context.count()
    assert (count.tokens, count.upper) == (23_334, 35_001 + 22_670)
    context.record_usage(Usage(30_000), layout=context.segments())
    assert context.count().upper == 30_000
    context.append(pdf)
    count = context.count(Calibration(1.25))
    assert count.upper == 30_000 + -(-1.35 * 1.25 * 23_334 // 1) + 100 + 22_670
    assert WorkingContext(messages=[pdf]).count().upper == 1.5 * 20_004


def test_formula_and_counters_without_a_model_stay_as_they_are() -> None:
    blocks: list[Any] = [image(1_920, 1_080), image(None, None), image(9, 9, "low"), DocumentBlock(b"x", pages=2)]
    message = Message("user", blocks)
    flat = sum(map(flat_tokens, blocks))
    assert estimate_message_tokens([message]) == ApproxTokenCounter().measure([message]) == flat + 4
    for counter in (CharClassTokenCounter(), CharClassTokenCounter("unheard-of"), ExactTokenCounter()):
        assert counter.measure([message]) == flat + 4


def test_figures_of_two_models_do_not_mix() -> None:
    """They are kept on the message, each under its rule."""
    message = Message("user", [image(1_920, 1_080)])
    context = WorkingContext(messages=[message], token_counter=CharClassTokenCounter(OLD))
    assert asyncio.run(context.tokens()) == 1_564
    context.token_counter = CharClassTokenCounter(NEW)
    assert asyncio.run(context.tokens()) == 2_695
    context.token_counter = CharClassTokenCounter()
    assert asyncio.run(context.tokens()) == 1_604
    assert ExactTokenCounter("o200k_base", NEW).measure([message]) == 2_695


sizes = st.integers(1, 20_000)
rules = st.sampled_from([rule for _, rule in IMAGES])


@given(sizes, sizes, rules, st.sampled_from([None, "high", "auto"]))
def test_no_image_is_free_or_over_its_cap(width: int, height: int, rule: Any, detail: str | None) -> None:
    found = media_tokens(image(width, height, detail), rule)
    assert found >= 1
    if rule.cap is not None:
        assert found <= -(-rule.cap * rule.factor // 1)
    assert found == media_tokens(image(width, height, detail), rule)
    if rule.size != 0:
        turned = media_tokens(image(height, width, detail), rule)
        assert turned == found


@given(sizes, sizes)
def test_claude_counts_what_fits_exactly(width: int, height: int) -> None:
    """An image within both limits is counted patch by patch."""
    rule = image_rule(OLD)
    plain = -(-width // 28) * -(-height // 28)
    if max(width, height) <= 1_568 and plain <= 1_568:
        assert media_tokens(image(width, height), rule) == plain
