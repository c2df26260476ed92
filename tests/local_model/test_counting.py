"""Counts that are anchored on what a real server reports stay close to it, and their upper bound is never exceeded.

The traffic is what this vocabulary of English and code was made for. A line of German takes it twice what the counter
says, which is calibrated on vocabularies of all languages: a turn of nothing else is above the bound by a few tokens.
"""

from __future__ import annotations

import random
from statistics import median, quantiles

import pytest

from agentkit.core.contracts.requests import ChatRequest
from agentkit.core.contracts.types import Message
from agentkit.state.context import Calibration, CharClassTokenCounter, PrefixContext, WorkingContext
from tests.local_model.model import MODEL, STANDING, LocalModel

pytestmark = [pytest.mark.anyio, pytest.mark.local_model]

TURNS = 30
KINDS = (
    "Where do I leave my bicycle?",
    '{"trip": {"day": "friday", "full": true}}',
    "print(sorted(boats, key=lambda b: b.name))",
    "grep -rn 'noon' --include '*.txt' .",
    "Nobody answered at the red house.",
    "Whose is 7f3a9c2e-11d0?",
)


def turn(at: int, chance: random.Random) -> str:
    """A question of some kind, never the same twice."""
    return f"{KINDS[at % len(KINDS)]} {' '.join(chance.choices(STANDING.split(), k=chance.randrange(1, 6)))}"


async def test_anchored_counts_are_close_and_their_bound_holds(model: LocalModel) -> None:
    llm, chance, calibration = model.chat(), random.Random(7), Calibration()
    wc = WorkingContext(PrefixContext(STANDING), token_counter=CharClassTokenCounter())
    off: list[float] = []
    reported = 0
    for at in range(TURNS):
        wc.append(Message("user", turn(at, chance)))
        count, layout = wc.count(calibration), wc.segments()
        request = ChatRequest(tuple(layout.messages()), MODEL, max_tokens=4, options={"seed": 1})
        result = await llm.chat(request)
        reported = result.usage.prompt_tokens
        assert reported <= count.upper
        assert count.source == ("provider" if at else "estimate")
        if at:
            off.append(abs(count.tokens - reported) / reported * 100)
        calibration = calibration.learn(wc.record_usage(result.usage, layout=layout, model=MODEL))
        wc.append(result.message)
    assert 600 < reported < 1_500
    assert median(off) <= 3
    assert quantiles(off, n=20)[-1] <= 10
