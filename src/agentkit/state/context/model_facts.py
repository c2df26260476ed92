"""What is known of a model's tokens, as data: vocabulary, first factor of the estimate, what tools add, how images are
counted. Touches only its arguments.

Figures are those published or measured by 2026-11-30. A model that no row names has none of them: nothing is guessed
from a name that only begins alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from agentkit.core.contracts.offers import ToolSchema

T = TypeVar("T")

_NEW_CLAUDE = r"claude-(opus-4-[78]|(opus|sonnet|haiku)-5|fable|mythos)\b.*"
"""Claude 4.7 and later: another tokenizer and larger images than before."""

ENCODINGS: tuple[tuple[str, str], ...] = (
    (r"gpt-oss\b.*", "o200k_harmony"),
    (r"(chatgpt-)?gpt-4o\b.*|chatgpt-4o\b.*|gpt-4\.[15]\b.*", "o200k_base"),
    (r"gpt-5(\.[1-6])?(-.*)?", "o200k_base"),
    (r"o[134](-.*)?", "o200k_base"),
    (r"gpt-4(-.*)?|gpt-3\.5\b.*", "cl100k_base"),
    (r"qwen3\.5\b.*", "qwen3.5"),
)
"""Vocabulary by model: gpt-4o to gpt-5.6 share one. No tokenizer is published for Claude since 3, for Gemini, nor for
gpt-6."""

SEEDS: tuple[tuple[str, float], ...] = ((_NEW_CLAUDE, 1.5), (r"claude\b.*", 1.25))
"""Tokens for one of o200k_base, near which the char-class counter comes: Claude up to Sonnet 4.6 takes 1.25 (1.28 in a
recorded session), 4.7 and later (new tokenizer, about + 30 %) 1.5 on English and code."""

TOOL_OVERHEAD: tuple[tuple[str, tuple[int, int]], ...] = (
    (r"claude-(sonnet|opus)-4-6\b.*", (497, 589)),
    (r"claude-opus-4-7\b.*", (675, 804)),
    (r"claude-opus-4-8\b.*", (290, 410)),
    (r"claude-haiku-4-5\b.*", (496, 588)),
    (r"claude-sonnet-5(?!-\d\b).*", (354, 474)),
    (r"claude-opus-5(?!-\d\b).*", (286, 406)),
)
"""Tokens that a provider adds to a request with any tool: with a free choice, and with a tool demanded
(platform.claude.com, pricing)."""

NATIVE_TOOLS = (("bash_", 325), ("text_editor_", 700))
"""Tokens of Anthropic's own tools, by the head of their type. For the bash tool 244 are published for some models and
325 for others; the larger counts for all."""

DEMANDED = frozenset({"any", "tool", "required", "function"})
"""Tool choices that demand a call, by the names of the providers."""


@lru_cache(256)
def bare_name(model: str) -> str:
    """The name in lower case without a vendor in front; of Claude the part that begins with `claude`, with dashes in
    place of the dots that some vendors write."""
    name = model.lower().rpartition("/")[2]
    at = name.find("claude")
    return name[at:].replace(".", "-") if at >= 0 else name


def fact(rows: tuple[tuple[str, T], ...], model: str | None) -> T | None:
    """The value of the first row whose pattern is the whole of a model's name."""
    if model is None:
        return None
    name = bare_name(model)
    return next((value for pattern, value in rows if re.fullmatch(pattern, name)), None)


def encoding_of(model: str | None) -> str | None:
    """The vocabulary that a model counts with; None where it is not published or not known."""
    return fact(ENCODINGS, model)


def first_factor(model: str | None) -> float:
    """How many tokens a model takes for one of the char-class counter, before it has reported any; 1.0 by default."""
    return fact(SEEDS, model) or 1.0


def tool_overhead(
    model: str | None, tools: Iterable[ToolSchema | Mapping[str, Any]] = (), tool_choice: Any = None
) -> int:
    """Tokens that the provider adds to a request with these tools, beside their schemas; 0 without any, and where
    nothing is published."""
    offered = list(tools)
    if not offered:
        return 0
    free, demanded = fact(TOOL_OVERHEAD, model) or (0, 0)
    kind = tool_choice.get("type") if isinstance(tool_choice, Mapping) else tool_choice
    own = sum(_native(tool) for tool in offered) if model is not None and "claude" in model.lower() else 0
    return own + (demanded if kind in DEMANDED else free)


def _native(tool: ToolSchema | Mapping[str, Any]) -> int:
    kind = tool.get("type") if isinstance(tool, Mapping) else None
    if not isinstance(kind, str):
        return 0
    return next((tokens for head, tokens in NATIVE_TOOLS if kind.startswith(head)), 0)


@dataclass(frozen=True)
class ImageRule:
    """How a provider counts an image. `name`: a word for counters to keep figures by.

    Patches of `size` px or tiles. Before counting, an image is fitted: its long edge into `edge` px, and its patches
    into `cap`; `original` is edge and cap at detail original. `low`: what detail low costs. `unknown`: an image whose
    size nobody knows, which is the cap. `page`: tokens of a PDF page, and `page_upper` the most it may take.
    """

    name: str
    size: int
    edge: int | None = None
    cap: int | None = None
    factor: float = 1.0
    tile: int = 0
    base: int = 0
    unknown: int = 1_600
    low: int | None = None
    page: int = 2_000
    page_upper: int = 2_000
    original: tuple[int, int] | None = None
    assumed: bool = False


def _claude(name: str, edge: int, cap: int) -> ImageRule:
    # A page of a PDF is 1,500 to 3,000 tokens of text and an image of the page.
    return ImageRule(name, 28, edge, cap, unknown=cap, page=2_333, page_upper=4_600)


def _tiles(name: str, base: int, tile: int) -> ImageRule:
    # At most 2,048 x 768 px, which are 4 x 2 tiles.
    return ImageRule(name, 512, tile=tile, base=base, unknown=base + 8 * tile, low=base)


def _few(name: str, factor: float) -> ImageRule:
    return ImageRule(name, 32, cap=1_536, factor=factor, unknown=round(1_536 * factor), assumed=True)


_GEMINI_2 = ImageRule("gemini-2", 768, tile=258, unknown=1_600, page=258, page_upper=258, assumed=True)
_GEMINI = ImageRule("gemini", 0, base=1_120, unknown=1_120, page=560, page_upper=560)

IMAGES: tuple[tuple[str, ImageRule], ...] = (
    (_NEW_CLAUDE, _claude("claude-2576", 2_576, 4_784)),
    (r"claude\b.*", _claude("claude-1568", 1_568, 1_568)),
    (r"gpt-4o-mini\b.*", _tiles("tiles-2833", 2_833, 5_667)),
    (r"(gpt-4\.1|gpt-5(\.\d)?)-mini\b.*", _few("patches-1.62", 1.62)),
    (r"(gpt-4\.1|gpt-5(\.\d)?)-nano\b.*", _few("patches-2.46", 2.46)),
    (r"o4-mini\b.*", _few("patches-1.72", 1.72)),
    (r"(chatgpt-)?gpt-4o\b.*|chatgpt-4o\b.*|gpt-4\.[15]\b.*", _tiles("tiles-85", 85, 170)),
    (r"gpt-5\.4(-.*)?", ImageRule("patches-2500", 32, 2_048, 2_500, unknown=2_500, original=(6_000, 10_000))),
    (r"gpt-5\.5(-.*)?", ImageRule("patches-10000", 32, 6_000, 10_000, unknown=10_000)),
    (r"gpt-5\.6(-.*)?|gpt-6\b.*", ImageRule("patches", 32, unknown=10_000, assumed=True)),
    (r"gpt-5(\.[1-3])?(-.*)?", _tiles("tiles-70", 70, 140)),
    (r"o[13](-.*)?", _tiles("tiles-75", 75, 150)),
    (r"gemini-2\b.*", _GEMINI_2),
    (r"gemini-[34]\b.*", _GEMINI),
)
"""Images and pages by model: platform.claude.com vision and pdf-support, developers.openai.com images-vision,
ai.google.dev tokens and media-resolution. `assumed`: gpt-5.6 names no cap, so an image of unknown size counts as one of
5.5 at its cap; Gemini 2.x names none either, so that one counts as the formula's largest. The original detail of 5.4 is
taken to be that of 5.5."""


def image_rule(model: str | None) -> ImageRule | None:
    """How a model counts images and pages; None where it is not known."""
    return fact(IMAGES, model)
