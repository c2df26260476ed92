"""`FakeProvider`: the life of a fake provider, and the way of a request through it. Opens a socket on 127.0.0.1 and a
thread; looks at the clock that it is given."""

from __future__ import annotations

import hmac
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from agentkit.models.catalog import window as catalog_window
from agentkit.models.catalog.abilities import Abilities, abilities_of

from .server import HttpAnswer, HttpRequest, LoopbackServer
from .shapes import Desk, Seal
from .stream import Faults, plain, spoilt, streamed, waited
from .usage import Bills, quarter, segments_of
from .values import Answer, Answers, Exchange, Refused, WireFault
from .wires import Route, listing, route

CREATED = 1_790_000_000
"""The time that answers bear, seconds since 1970: fixed, so that the same run is the same bytes."""

_SECRETS = frozenset({"authorization", "x-api-key", "x-goog-api-key", "cookie"})
_WELL = WireFault()


class FakeProvider:
    """Answers by `answers`: one after the other, each an Answer, a text or a mapping of an Answer's fields, or a
    function that makes one of the Exchange; None: always the same short text. `repeat`: the last is given again.

    `faults`: for the requests in order, each a WireFault, its kind, a mapping, or None for one that goes well; each
    takes the first that is left and fits it. `api_key`: the only one that is accepted, None: any. `models`: the only
    ones, None: any. `windows`: in tokens by model, beside those of the catalogue. `abilities`: what a model
    refuses. `counter`: tokens of a text, by default a quarter of its characters. `clock`: seconds, for lifetimes in
    the cache. `piece`: characters of each piece of a stream. `keep`: how many exchanges are remembered, None for all.

    FormatError for answers or faults that cannot be read. Each piece of the log is complete before its answer begins.
    """

    def __init__(
        self,
        answers: Answers | None = None,
        *,
        repeat: bool = False,
        faults: Iterable[WireFault | Mapping[str, Any] | str | None] = (),
        api_key: str | None = None,
        models: Sequence[str] | None = None,
        windows: Mapping[str, int] | None = None,
        abilities: Callable[[str], Abilities] = abilities_of,
        counter: Callable[[str], int] = quarter,
        clock: Callable[[], float] = time.monotonic,
        piece: int = 8,
        keep: int | None = None,
        sign_key: bytes = b"fake provider",
        port: int = 0,
    ) -> None:
        if piece < 1:
            raise ValueError(f"piece must be at least 1 character, not {piece}")
        self._make = answers if callable(answers) else None
        listed = [Answer("OK.")] if answers is None else [] if callable(answers) else list(answers)
        self._answers = [Answer.read(one, f"answers[{at}]") for at, one in enumerate(listed)]
        self._repeat, self._given = repeat or answers is None, 0
        self._faults = Faults([WireFault.read(one, f"faults[{at}]") for at, one in enumerate(faults)])
        self._api_key, self._clock = api_key, clock
        own = dict(windows or {})
        named = None if models is None else tuple(models)
        self._desk = Desk(
            Seal(sign_key),
            counter,
            piece,
            lambda model: own.get(model) or catalog_window(model),
            named,
            CREATED,
            abilities,
        )
        self._bills = Bills(counter)
        self.requests: deque[Exchange] = deque(maxlen=keep)
        self._server = LoopbackServer(self._serve, port=port)

    # The life of it

    @property
    def url(self) -> str:
        """The base URL for Anthropic's and Google's clients. ValueError before it is open."""
        if not self._server.port:
            raise ValueError("a FakeProvider has an address once it is open: use it in a `with` block")
        return f"http://127.0.0.1:{self._server.port}"

    @property
    def openai_url(self) -> str:
        """The base URL for OpenAI's clients."""
        return f"{self.url}/v1"

    @property
    def last(self) -> Exchange:
        """The latest exchange. IndexError before the first."""
        return self.requests[-1]

    def open(self) -> FakeProvider:
        """Begins to serve."""
        self._server.open()
        return self

    def close(self) -> None:
        """Ends connections, thread and socket; the log stays."""
        self._server.close()

    def fail(self, *faults: WireFault | Mapping[str, Any] | str | None) -> None:
        """More faults, behind those that are left."""
        for fault in faults:
            self._faults.add(WireFault.read(fault))

    def mend(self) -> None:
        """No faults from here on."""
        self._faults.clear()

    def __enter__(self) -> FakeProvider:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # One request

    async def _serve(self, request: HttpRequest) -> HttpAnswer:
        exchange, found = self._received(request)
        try:
            if found is None:
                return self._elsewhere(exchange)
            key = self._key(request, found)
            exchange = self._judged(exchange, found, key)
            if found.counting:
                return self._noted(exchange, found.wire.counted(exchange.prompt.tokens))
            return await self._answered(exchange, found)
        except Refused as refused:
            self.requests.append(replace(exchange, status=refused.status, error=refused.body))
            return plain(refused.status, refused.body, refused.headers)

    def _received(self, request: HttpRequest) -> tuple[Exchange, Route | None]:
        path = unquote(urlsplit(request.target).path)
        found = route(request.method, path)
        headers = {name: value for name, value in request.headers.items() if name not in _SECRETS}
        try:
            body = json.loads(request.body) if request.body else None
        except ValueError:
            body = None
        if found is not None and found.model is not None and isinstance(body, dict):
            body = {"model": found.model, **body}
        name = "" if found is None else found.wire.name
        return Exchange(request.method, path, name, headers, body, request.body, self._clock()), found

    def _elsewhere(self, exchange: Exchange) -> HttpAnswer:
        """What is asked on no wire: the models, or nothing that there is."""
        if exchange.method == "GET" and exchange.path == "/v1/models":
            names = self._desk.models or ()
            return self._noted(exchange, listing(names, CREATED, "anthropic-version" in exchange.headers))
        body = {
            "error": {"message": f"Unknown request URL: {exchange.method} {exchange.path}", "type": "not_found_error"}
        }
        raise Refused(404, {"type": "error", **body})

    def _key(self, request: HttpRequest, found: Route) -> str:
        """The key that a request bears, as a digest. Refuses one that is absent or wrong."""
        query = dict(parse_qsl(urlsplit(request.target).query))
        key = found.wire.secret(request.headers) or query.get("key")
        if key is None or (self._api_key is not None and not hmac.compare_digest(key.encode(), self._api_key.encode())):
            raise found.wire.unauthorised
        return sha256(key.encode()).hexdigest()[:16]

    def _judged(self, exchange: Exchange, found: Route, key: str) -> Exchange:
        """The exchange with its prompt. Refuses a request that is ill-formed or too large."""
        wire = found.wire
        if exchange.body is None:
            raise wire.malformed("The request body is not valid JSON.")
        wire.check(exchange.body, exchange.headers, self._desk, found.counting)
        whole = wire.read(exchange.body, self._desk)
        prompt = self._bills.prompt(whole, wire.name, key)
        exchange = replace(exchange, prompt=prompt, segments=segments_of(wire.parts(whole), prompt))
        if not found.counting:
            wire.check_size(exchange.body, prompt.tokens, self._desk)
        return exchange

    async def _answered(self, exchange: Exchange, found: Route) -> HttpAnswer:
        wire, fault = found.wire, self._faults.take(exchange)
        exchange, fault = replace(exchange, fault=fault), fault or _WELL
        if fault.refuses and fault.kind is not None:
            refused = wire.refusal(fault.kind, fault.message, fault.status)
            wait = {} if fault.retry_after is None else {"retry-after": f"{fault.retry_after:g}"}
            self.requests.append(replace(exchange, status=refused.status, error=refused.body))
            await waited(fault.before)
            return plain(refused.status, refused.body, {**wait, **fault.headers})
        begins = exchange.at + fault.before if isinstance(fault.before, (int, float)) else None
        try:
            bill = self._bills.bill(exchange.prompt, exchange.at, begins)
        except ValueError as error:
            raise wire.malformed(str(error)) from None
        answer = spoilt(self._next(exchange, found), fault, wire.cut_reason)
        spent = self._bills.spent(exchange.prompt, bill, answer)
        exchange = replace(exchange, bill=bill, spent=spent, answer=answer)
        whole = wire.whole(answer, exchange.body, spent, self._desk)
        if found.streams if found.streams is not None else exchange.body.get("stream"):
            events = list(wire.events(whole, answer, exchange.body, spent, self._desk))
            made = streamed(events, fault, wire.error_event(fault.kind or "server", fault.message))
            self.requests.append(replace(exchange, status=200))
        else:
            made = self._noted(exchange, whole)
            made.cut = None if fault.cut_after is None else len(made.body) // 2 if fault.cut_after else 0
        made.headers = {**made.headers, **fault.headers}
        await waited(fault.before)
        return made

    def _next(self, exchange: Exchange, found: Route) -> Answer:
        if self._make is not None:
            return Answer.read(self._make(exchange))
        at = self._given
        if at >= len(self._answers):
            if not (self._repeat and self._answers):
                raise found.wire.malformed(f"the script of this fake provider is at its end: it has {at} answers")
            return self._answers[-1]
        self._given += 1
        return self._answers[at]

    def _noted(self, exchange: Exchange, body: Any) -> HttpAnswer:
        self.requests.append(replace(exchange, status=200))
        return plain(200, body)
