"""The simulator's row of llama.cpp says what the real server reads, over random histories of one conversation."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from agentkit.models.cache import Block, Prompt, PromptCache, rules_for
from tests.local_model.model import MODEL, LocalModel, common

pytestmark = pytest.mark.local_model

STEPS = 50
WORDS = ["pier", "ferry", "noon", "ticket", "red", "house", "dog", "deck", "wind", "flag", "island", "master", "lamp"]


def blocks(tokens: Sequence[int]) -> tuple[Block, ...]:
    return tuple(Block("messages", str(token), 1) for token in tokens)


def said(model: LocalModel, messages: list[dict[str, Any]], length: int) -> tuple[str, list[int], int, int]:
    """Text and tokens of an answer of at most `length` tokens, and how much of the prompt was read of how much."""
    body = {"messages": messages, "max_tokens": length, "temperature": 0, "seed": 1, "logprobs": True}
    answer = model.post("/v1/chat/completions", {**body, "top_logprobs": 1, "model": MODEL})
    choice, usage = answer["choices"][0], answer["usage"]
    reply = [one["id"] for one in choice["logprobs"]["content"]]
    read = usage["prompt_tokens_details"]["cached_tokens"]
    return choice["message"]["content"] or "-", reply, read, usage["prompt_tokens"]


class Talk:
    """A conversation that is appended to, edited, cut, and put back to how it was."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": "Answer in one word."}, self.asked()]
        self.earlier = [list(self.messages)]

    def asked(self) -> dict[str, Any]:
        return {"role": "user", "content": " ".join(self.random.choices(WORDS, k=5))}

    def change(self, reply: str) -> None:
        """What becomes of it after an answer."""
        at = self.random.randrange(2, len(self.messages)) if len(self.messages) > 2 else 1
        kind = self.random.choices(["append", "edit", "cut", "return", "repeat"], [5, 2, 2, 2, 1])[0]
        if kind == "append" and len(self.messages) < 12:
            self.messages = [*self.messages, {"role": "assistant", "content": reply}, self.asked()]
        elif kind == "edit":
            self.messages = [*self.messages]
            self.messages[at] = {**self.messages[at], "content": self.asked()["content"]}
        elif kind == "cut":
            self.messages = (
                [*self.messages[:1], self.asked()] if at < 2 else [*self.messages[: at - at % 2], self.asked()]
            )
        elif kind == "return":
            self.messages = list(self.random.choice(self.earlier))
        self.earlier.append(list(self.messages))


def test_reads_are_predicted_to_the_token(model: LocalModel) -> None:
    rules = rules_for(MODEL, "llama.cpp")
    assert rules is not None
    cache, talk, slot = PromptCache(rules), Talk(5), list[int]()
    told: list[tuple[int, int, int]] = []
    for step in range(STEPS):
        prompt = model.tokens(talk.messages)
        text, reply, read, size = said(model, talk.messages, 1 + step % 4)
        assert size == len(prompt)
        kept = reply[:-1]
        bill = cache.send(Prompt(MODEL, blocks(prompt)), at=step, reply=blocks(kept))
        of_slot = min(common(slot, prompt), size - 1)
        told.append((read, bill.read, of_slot))
        slot = [*prompt, *kept]
        talk.change(text)
    own = [(read, predicted) for read, predicted, of_slot in told[1:] if predicted == of_slot]
    assert [pair for pair in own if pair[0] != pair[1]] == []
    # An older copy shares more. The server looks for one where less than half of the slot would be kept, and has only
    # those that it put away at such a moment, so it may read less than the row says, and never less than its slot has.
    older = [one for one in told[1:] if one[1] > one[2]]
    assert [one for one in older if not one[2] <= one[0] <= one[1]] == []
    assert any(read > of_slot for read, _, of_slot in older)
    assert sum(read == predicted for read, predicted, _ in told[1:]) >= STEPS * 4 // 5
