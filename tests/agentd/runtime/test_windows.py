"""N7: each model has a window of its own, and what is learned of one says nothing of another."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agentd.runtime.models import REST
from agentd.runtime.requests import Requests
from agentkit.core.contracts.errors import ContextOverflowError, TransientError
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult
from tests.agentd.daemon.house import settings_of
from tests.agentd.runtime.test_models import ASKED, Clock, models

pytestmark = pytest.mark.anyio


class Failing:
    """A model that answers with a fault."""

    def __init__(self, fault: Exception) -> None:
        self.fault = fault

    async def chat(self, request: ChatRequest, /) -> LLMResult:
        raise self.fault

    async def stream(self, request: ChatRequest, /) -> AsyncIterator[Delta]:
        await self.chat(request)
        yield Delta("never")


def test_a_window_is_that_of_the_model_which_is_asked_first_just_now() -> None:
    serving = ["claude-sonnet-4-5"]
    settings = settings_of(intelligence__model="claude-sonnet-4-5", context__model_window="null")
    requests = Requests(lambda: 0, serving=lambda: serving[0])
    own = requests.window(settings)
    assert own.source == "catalogue"
    requests.learned["of-nobody"] = 6_000
    assert requests.window(settings) == own, "another model's refusal teaches nothing of this one"
    terms = requests.terms_of(settings)
    assert (terms.model, terms.window, terms.rates is not None) == ("claude-sonnet-4-5", own.tokens, True)
    serving[0] = "of-nobody"
    assert (requests.window(settings).tokens, requests.window(settings).source) == (6_000, "learned")
    terms = requests.terms_of(settings)
    assert (terms.model, terms.window, terms.rates, terms.output) == ("of-nobody", 6_000, None, 1_500)
    assert terms.summariser.model == "claude-sonnet-4-5", "each endpoint puts its own model in its place"
    serving[0] = "claude-sonnet-4-5"
    assert requests.terms_of(settings).window == own.tokens


async def test_a_refusal_names_the_model_whose_window_it_is_and_who_rests_is_not_asked_first() -> None:
    clock = Clock()
    small = ContextOverflowError("400: the maximum is 6000 tokens", window=6_000)
    found = models(Failing(TransientError("down")), Failing(small), clock=clock)
    assert found.serving == "m0"
    with pytest.raises(ContextOverflowError) as caught:
        await found.chat(ASKED)
    assert (caught.value.model, caught.value.window) == ("m1", 6_000)
    assert found.serving == "m1"
    clock.now += REST + 1
    assert found.serving == "m0"


async def test_a_stream_that_is_refused_names_it_too() -> None:
    found = models(Failing(ContextOverflowError("too long", window=6_000)))
    with pytest.raises(ContextOverflowError) as caught:
        async for _ in found.stream(ASKED):
            pass
    assert caught.value.model == "m0"
