"""`FakeProvider`: a model provider on loopback, for tests of whoever calls one over HTTP. Opens a socket on 127.0.0.1
and a thread; looks at the clock that it is given.

    with FakeProvider(answers=["Hello."]) as provider:
        client = anthropic.AsyncAnthropic(api_key="test", base_url=provider.url)
        ...
    provider.last.body          # what was sent
    provider.last.bill          # what a prompt cache makes of it

It speaks Anthropic Messages, OpenAI Chat Completions and Responses, and Gemini generateContent, whole and as streams;
refuses what these refuse, in their words; and reports usage by the rules of their prompt caches. As a process of its
own: `python -m agentkit.models.testing.provider --script FILE` prints its address and ends with its standard input. The
file is JSON: an object with `answers`, and any other argument of FakeProvider that JSON can hold.
"""

from __future__ import annotations

from .fake import FakeProvider
from .values import KINDS, Answer, AnswerCall, Exchange, Gate, Segment, Spent, WireFault

__all__ = ["KINDS", "Answer", "AnswerCall", "Exchange", "FakeProvider", "Gate", "Segment", "Spent", "WireFault"]
