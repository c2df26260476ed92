"""Tools for what the conversation shows: compact. Touch the context that the desk hands them."""

from __future__ import annotations

from .base import Answer, Invocation, Tool
from .making import AT_LEAST_ONE, AT_LEAST_ZERO, TEXT, WHOLE, closed, open_object, own, whole, with_words


async def _compact(asked: Invocation) -> Answer:
    given = asked.arguments
    return Answer(await asked.desk.compact(whole(given, "target_tokens"), whole(given, "keep_last")))


def context_tools() -> list[Tool]:
    """The tools of this module."""
    compact = closed(
        {},
        {
            "target_tokens": with_words(AT_LEAST_ONE, "size to come down to"),
            "keep_last": with_words(AT_LEAST_ZERO, "messages to keep as they are"),
        },
    )
    return [
        own("context.compact", "Fold the older part of this conversation into its summary now.", _compact, compact,
            open_object({"version": WHOLE, "est_tokens": WHOLE, "folded": WHOLE}, {"declined": TEXT})),
    ]  # fmt: skip
