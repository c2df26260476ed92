"""The model: the endpoints of the settings behind one port, tried in order. Touches what the dialects touch: files for
recordings and scripts, later the network; clock, sleep and random are handed in.

A fault that may pass is tried again after a pause, and then at the next endpoint; a refusal is the answer and is tried
nowhere else. An answer that was cut off is no answer: it is asked for again, whole.
"""

from __future__ import annotations

import asyncio
import logging
import random as chance
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from agentd.config import Settings
from agentd.records.watch import Watch
from agentkit.core.contracts.errors import ContextOverflowError, TransientError
from agentkit.core.contracts.ports import LLM
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult
from agentkit.core.contracts.validity import repair
from agentkit.models.adapters.replay import RecordedTools, ReplayLLM

from .dialects import DIALECTS
from .endpoints import Opener, Where
from .providers import LazyLLM

log = logging.getLogger("agentd")

REST = 30.0
"""Seconds for which an endpoint that was given up is asked last: an outage should not cost each call its retries."""


class Unreachable(TransientError):
    """No endpoint of the model could be reached."""


@dataclass(frozen=True)
class Backoff:
    """Pauses in front of further tries at one endpoint: `first` seconds, each twice the one before, at most `longest`,
    of which chance takes away up to half, so that many callers do not come back at once."""

    tries: int = 3
    first: float = 0.5
    longest: float = 30.0

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise ValueError(f"tries must be at least 1, not {self.tries}")

    def pause(self, failed: int, share: float) -> float:
        """Seconds to wait after the `failed`th try; `share` of chance is from 0 to 1."""
        return float(min(self.first * 2 ** (failed - 1), self.longest) * (1 - share / 2))


@dataclass
class Route:
    """Which endpoint is asked next: a decision over what was heard, for one call. `order`: of the endpoints."""

    order: Sequence[int]
    backoff: Backoff
    failed: int = 0
    _at: int = 0

    @property
    def here(self) -> int:
        return self.order[self._at]

    def after_failure(self, *, timed_out: bool, share: float) -> float | None:
        """Seconds to wait before `here` is asked again; None when nobody is left to ask. Who did not answer in time is
        not asked again while there is somebody else."""
        self.failed += 1
        is_last = self._at + 1 >= len(self.order)
        if self.failed < self.backoff.tries and (is_last or not timed_out):
            return self.backoff.pause(self.failed, share)
        if is_last:
            return None
        self._at, self.failed = self._at + 1, 0
        return 0.0


@dataclass(frozen=True)
class Failure:
    """A try that failed. `wait`: seconds until the next one, None when there is none."""

    endpoint: str
    model: str
    reason: str
    wait: float | None


@dataclass
class Endpoint:
    """One place where a model is asked. `name`: how it is called in messages; `llm`: what asks there. `must_finish`:
    an answer without a finish reason was cut off; models of a user's own need not give one. `repairs`: it makes of any
    transcript what its provider takes, as adapters do; all others are given a view that every provider takes."""

    name: str
    model: str
    llm: LLM
    must_finish: bool = True
    answered: int = 0
    failed: int = 0
    rests_until: float = float("-inf")

    @property
    def repairs(self) -> bool:
        return bool(getattr(self.llm, "repairs", False))


class Models:
    """The port LLM over several endpoints, in order.

    `timeout` of one try in seconds, `default_model`: what a request names that names no model of its own, so that each
    endpoint is asked for its own; `max_output`: for a request without. `told` hears of each failure. TransientError,
    the subclass Unreachable, is raised once all have failed; AuthError, PermanentError and ContextOverflowError, which
    carries the window and the name of the model that refused, pass at once.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        *,
        timeout: float,
        default_model: str,
        max_output: int | None = None,
        backoff: Backoff | None = None,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        random: Callable[[], float] = chance.random,
        clock: Callable[[], float] = time.monotonic,
        told: Callable[[Failure], None] | None = None,
    ) -> None:
        if not endpoints:
            raise ValueError("a model needs at least one endpoint")
        self.endpoints = tuple(endpoints)
        self.unreachable = 0
        """Calls that no endpoint answered."""
        self._timeout, self._default_model, self._max_output = timeout, default_model, max_output
        self._backoff = Backoff() if backoff is None else backoff
        self._watch = Watch(timeout, "the model gave no answer in time")
        self._sleep, self._random, self._clock = sleep, random, clock
        self._told = _logged if told is None else told

    @property
    def repairs(self) -> bool:
        """Whether requests are to be handed over as they are laid out, unrepaired."""
        return any(endpoint.repairs for endpoint in self.endpoints)

    @property
    def recorded(self) -> RecordedTools | None:
        """The tools of the recording that is replayed, if one is."""
        return next((e.llm.tools for e in self.endpoints if isinstance(e.llm, ReplayLLM)), None)

    @property
    def serving(self) -> str:
        """The model of the endpoint that is asked first just now."""
        return self.endpoints[self._route().here].model

    async def aclose(self) -> None:
        """Close the connections of endpoints that were opened here; a user's own model stays as it is."""
        for endpoint in self.endpoints:
            if isinstance(endpoint.llm, LazyLLM):
                await endpoint.llm.aclose()

    async def chat(self, request: ChatRequest, /) -> LLMResult:
        """The whole answer of the first endpoint that gives one."""
        route = self._route()
        while True:
            endpoint = self.endpoints[route.here]
            try:
                asked = partial(endpoint.llm.chat, self._addressed(request, endpoint))
                result = await self._watch.within(asked)
                if result.finish_reason is None and (endpoint.must_finish or result.partial):
                    raise TransientError("the answer was cut off")
            except ContextOverflowError as error:
                error.model = error.model or endpoint.model
                raise
            except (TransientError, OSError) as error:  # TimeoutError is an OSError
                await self._next(route, endpoint, error)
            else:
                self._succeeded(endpoint)
                return result if result.model is not None else replace(result, model=endpoint.model)

    async def stream(self, request: ChatRequest, /) -> AsyncGenerator[Delta, None]:
        """The answer in pieces. Before the first piece like `chat`; a stream that is cut off later raises
        TransientError, and what came of it is to be forgotten."""
        route = self._route()
        while True:
            endpoint = self.endpoints[route.here]
            begun = False
            try:
                async with aclosing(self._pieces(request, endpoint)) as deltas:
                    async for delta in deltas:
                        begun = True
                        yield delta
            except ContextOverflowError as error:
                error.model = error.model or endpoint.model
                raise
            except (TransientError, OSError) as error:
                if begun:
                    self._failed(endpoint, _reason(error), None)
                    raise TransientError(_reason(error)) from error
                await self._next(route, endpoint, error)
            else:
                self._succeeded(endpoint)
                return

    async def _pieces(self, request: ChatRequest, endpoint: Endpoint) -> AsyncGenerator[Delta, None]:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._timeout
        finished = False
        deltas = endpoint.llm.stream(self._addressed(request, endpoint))
        try:
            while True:
                async with asyncio.timeout_at(until):
                    delta = await anext(deltas, None)
                if delta is None:
                    break
                finished = finished or delta.finish_reason is not None
                yield delta
        finally:
            if isinstance(deltas, AsyncGenerator):  # the port asks for an iterator only
                await deltas.aclose()
        if endpoint.must_finish and not finished:
            raise TransientError("the answer was cut off")

    def _route(self) -> Route:
        now = self._clock()
        order = sorted(range(len(self.endpoints)), key=lambda at: self.endpoints[at].rests_until > now)
        return Route(order, self._backoff)

    def _addressed(self, request: ChatRequest, endpoint: Endpoint) -> ChatRequest:
        """The request with the endpoint's own model, unless it asks for a certain other one."""
        model = endpoint.model if request.model in (None, self._default_model) else request.model
        output = self._max_output if request.max_tokens is None else request.max_tokens
        if self.repairs and not endpoint.repairs:  # beside others that do: rare, so repaired as a whole each time
            view = repair(request.messages, prefix=request.prefix_length).messages
            request = replace(request, messages=view, cache_hint=None, prefix=None)
        if model == request.model and output == request.max_tokens:
            return request
        return replace(request, model=model, max_tokens=output)

    async def _next(self, route: Route, endpoint: Endpoint, error: Exception) -> None:
        """Wait until the next try is due; Unreachable when there is none."""
        wait = route.after_failure(timed_out=isinstance(error, TimeoutError), share=self._random())
        if wait is None or self.endpoints[route.here] is not endpoint:
            endpoint.rests_until = self._clock() + REST
        self._failed(endpoint, _reason(error), wait)
        if wait is None:
            self.unreachable += 1
            names = ", ".join(self.endpoints[at].name for at in route.order)
            raise Unreachable(f"no model could be reached at {names}; last: {_reason(error)}") from error
        if wait:
            await self._sleep(wait)

    def _failed(self, endpoint: Endpoint, reason: str, wait: float | None) -> None:
        endpoint.failed += 1
        self._told(Failure(endpoint.name, endpoint.model, reason, wait))

    def _succeeded(self, endpoint: Endpoint) -> None:
        endpoint.answered += 1
        endpoint.rests_until = float("-inf")

    def status(self) -> list[dict[str, Any]]:
        """Each endpoint: name, model, answers, failures, and whether it is given up for now."""
        now = self._clock()
        return [
            {"endpoint": e.name, "model": e.model, "answered": e.answered, "failed": e.failed,
             "resting": e.rests_until > now}
            for e in self.endpoints
        ]  # fmt: skip


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) if isinstance(error, TransientError) else f"{type(error).__name__}: {error}"


def _logged(failure: Failure) -> None:
    then = "no further try" if failure.wait is None else f"next try in {failure.wait:.1f} s"
    log.warning("model %s at %s failed: %s; %s", failure.model, failure.endpoint, failure.reason, then)


def open_models(
    settings: Settings, *, folder: Path | None = None, dialects: Mapping[str, Opener] = DIALECTS, **how: Any
) -> Models:
    """The models of `intelligence.endpoints`. `folder`: what relative file names are relative to; `dialects`: what
    opens an endpoint, by dialect; `how`: as Models takes it (sleep, random, clock, told, backoff).

    FormatError for a file that cannot be read, ValueError for a dialect that nothing here speaks.
    """
    given = settings.intelligence
    endpoints = []
    for endpoint in given.endpoints:
        dialect = given.dialect_of(endpoint)
        opener = dialects.get(dialect or "")
        if opener is None:
            known = ", ".join(sorted(dialects))
            raise ValueError(f"{endpoint.url}: nothing here speaks the dialect {dialect}; known are {known}")
        llm = opener(Where(endpoint.url, folder, settings, endpoint))
        endpoints.append(Endpoint(endpoint.url, given.model_of(endpoint), llm))
    return Models(
        endpoints, timeout=given.timeout.total_seconds(), default_model=given.model, max_output=given.max_output, **how
    )


def models_of(llm: LLM, settings: Settings, **how: Any) -> Models:
    """A user's own model under the same care: time limit, pauses, tries."""
    given = settings.intelligence
    endpoint = Endpoint(type(llm).__name__, given.model, llm, must_finish=False)
    return Models(
        [endpoint], timeout=given.timeout.total_seconds(), default_model=given.model, max_output=given.max_output, **how
    )
