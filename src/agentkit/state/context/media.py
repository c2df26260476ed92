"""Tokens of images and documents by the rules of their provider, never by the length of their bytes. Touches only its
arguments.
"""

from __future__ import annotations

from math import ceil, floor, sqrt

from agentkit.core.contracts.blocks import DocumentBlock, ImageBlock
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.tokens import IMAGE_LARGE, flat_tokens

from .model_facts import ImageRule

UNKNOWN_PAGES = 4
"""Pages of a document that nobody counted: as many as the formula's 8,000 tokens are."""
LOW_EDGE = 512
"""Long edge of what OpenAI makes of an image at detail low."""
GEMINI_DETAIL = {"low": 280, "medium": 560, "high": 1_120, "ultra": 2_240}


def media_tokens(block: ImageBlock | DocumentBlock, rule: ImageRule | None) -> int:
    """Tokens of one image or document; the formula's figure without a rule."""
    if rule is None:
        return flat_tokens(block)
    if isinstance(block, DocumentBlock):
        if (block.media_type or "").startswith(("audio/", "video/")):
            return IMAGE_LARGE
        return rule.page * (UNKNOWN_PAGES if block.pages is None else block.pages)
    return _image(block, rule)


def media_slack(message: Message, rule: ImageRule | None) -> int:
    """How many tokens more than their figure the documents of a message may take."""
    if rule is None or rule.page_upper == rule.page or not message.blocks:
        return 0
    pages = sum(
        UNKNOWN_PAGES if block.pages is None else block.pages
        for block in message.blocks
        if isinstance(block, DocumentBlock) and not (block.media_type or "").startswith(("audio/", "video/"))
    )
    return (rule.page_upper - rule.page) * pages


def _image(image: ImageBlock, rule: ImageRule) -> int:
    if rule.name == "gemini":
        return GEMINI_DETAIL.get(image.detail or "high", rule.base)
    if image.detail == "low" and rule.low is not None:
        return rule.low
    if not image.width or not image.height:
        if image.detail == "original" and rule.original is not None:
            return rule.original[1]
        low = image.detail == "low" and rule.size == 32
        return ceil(rule.factor * (LOW_EDGE // 32) ** 2) if low else rule.unknown
    width, height = float(image.width), float(image.height)
    if rule.tile:
        return _tiled(width, height, rule)
    if rule.size == 28:
        return _anthropic(image.width, image.height, rule)
    edge, cap = rule.edge, rule.cap
    if image.detail == "original" and rule.original is not None:
        edge, cap = rule.original
    elif image.detail == "low":
        edge = LOW_EDGE
    if edge is not None:
        width, height = _fitted(width, height, edge)
    return ceil(rule.factor * _patches(width, height, rule.size, cap))


def _tiled(width: float, height: float, rule: ImageRule) -> int:
    """Tiles of the image as the provider shrinks it: OpenAI into 2,048 px and the short side to 768."""
    if rule.base:
        width, height = _fitted(width, height, 2_048)
        shrink = min(768 / min(width, height), 1.0)
        width, height = width * shrink, height * shrink
    return rule.base + rule.tile * ceil(width / rule.size) * ceil(height / rule.size)


def _anthropic(width: int, height: int, rule: ImageRule) -> int:
    """Patches of the largest form of the image, proportions kept, that neither edge nor cap exceeds."""
    long, short = max(width, height), min(width, height)

    def patches(edge: int) -> int:
        return ceil(edge / rule.size) * ceil(short * edge / long / rule.size)

    cap = rule.cap or 0
    low, high = 1, min(long, rule.edge or long)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if patches(middle) <= cap else (low, middle - 1)
    return patches(low)


def _patches(width: float, height: float, size: int, cap: int | None) -> int:
    """Patches that cover the image; over the cap it is shrunk until whole patches fit, as OpenAI's guide has it."""
    count = ceil(width / size) * ceil(height / size)
    if cap is None or count <= cap:
        return count
    shrink = sqrt(cap * size**2 / (width * height))
    across, down = width * shrink / size, height * shrink / size
    if across < 1 or down < 1:  # a strip of a single row of patches
        return cap
    shrink = min(floor(across) / across, floor(down) / down)
    # A hair is taken off, since a product of floats may end up above the whole number that it stands for.
    return min(ceil(across * shrink - 1e-9) * ceil(down * shrink - 1e-9), cap)


def _fitted(width: float, height: float, edge: int) -> tuple[float, float]:
    shrink = min(edge / max(width, height), 1.0)
    return width * shrink, height * shrink
