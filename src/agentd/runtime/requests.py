"""What is sent to the model for a context, and how large that is. Touches only its arguments and what it remembers of
models: learned windows, the calibration of estimates, when each context last asked.

Order of a request: tools, standing prompt | summary, skills | tail | volatile block. The last is never stored and
stands behind every place that a provider could have kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from agentd.config import Settings
from agentd.context.messages import Shown
from agentd.context.resident import Context
from agentd.context.scene import shown_messages
from agentd.context.settings import RULE_SHARE, Reduction
from agentd.context.tokens import Conditions, Fixed, RequestSize, model_window, size_of
from agentd.context.units import Work
from agentkit.core.contracts.counting import SyncTokenCounter
from agentkit.core.contracts.framing import frame
from agentkit.core.contracts.messages import Message, derived, marked
from agentkit.core.contracts.offers import ToolSchema, canonical_tools
from agentkit.core.contracts.requests import ChatRequest
from agentkit.core.contracts.usage import Usage
from agentkit.core.contracts.validity import GrowingView
from agentkit.models.catalog import Window, rates
from agentkit.state.compaction import Conversation, PriceRates, Summariser
from agentkit.state.context import CharClassTokenCounter, Layout
from agentkit.state.context.anchor import Calibration, Observation
from agentkit.state.context.layout import Segment, first_difference

from .reducing import Situation

SUMMARY_TIMEOUT, SUMMARY_OUTPUT = 120.0, 4_096
"""Seconds, and tokens of the answer, of a summarising call."""
WARM = 300_000
"""Milliseconds that a provider's cache keeps a request: the shortest lifetime that is sold, five minutes."""
MISS_TOKENS, MISS_SHARE = 2_048, 0.1
"""Fewer tokens, or less of what was there, are no miss: providers keep whole steps, of up to 2,048 tokens."""


@dataclass(frozen=True)
class Standing:
    """What stands in front of every request of a principal: the prompt as a message, and the tools it may use. The
    same object as long as nothing of it changes, so that it is counted and rendered once."""

    prompt: Message
    tools: tuple[ToolSchema, ...]
    read_only: frozenset[str] = frozenset()

    @cached_property
    def canonical(self) -> tuple[str, ...]:
        """The tools as their texts, in the order in which they are sent."""
        return canonical_tools(self.tools)


@dataclass(frozen=True)
class Prepared:
    """A request that may be sent. `last`: the newest entry in it; `volatile`: estimated tokens of its closing block."""

    request: ChatRequest
    size: RequestSize
    layout: Layout
    last: int
    volatile: int


@dataclass(frozen=True)
class Terms:
    """What follows from settings and the model in use alone. `window` and `output` in tokens; `learned`: the window
    that the model's provider has named."""

    settings: Settings
    model: str
    window: int
    learned: int | None
    output: int
    rates: PriceRates | None
    reduction: Reduction
    summariser: Summariser


@dataclass(frozen=True)
class Asked:
    """The last request of a context: when, in ms, its layout, the tokens of it that the provider's cache had then, read
    and written, by its own report, and the model whose cache that is."""

    at: int
    layout: Layout
    kept: int = 0
    model: str = ""


@dataclass(frozen=True)
class Miss:
    """A request found less in the provider's cache than the one before had left there. `segment`: the first that
    differs, None where nothing does; `cause`: why it differs, `model` where another one was asked, else `expired` or
    `unexplained`; tokens."""

    segment: str | None
    cause: str
    expected: int
    read: int


class Requests:
    """Builds the requests of one instance. `repairs`: who gets them sees to it that the transcript is valid for its
    provider, and puts the marks where they belong then; `cache_key`: what providers tell its requests by."""

    def __init__(
        self,
        clock: Callable[[], int],
        counter: SyncTokenCounter | None = None,
        *,
        repairs: bool = False,
        cache_key: str = "",
        serving: Callable[[], str] | None = None,
    ) -> None:
        self._clock, self._repairs, self._serving = clock, repairs, serving
        self._options = {"cache_key": cache_key} if cache_key else {}
        self._counter = counter or CharClassTokenCounter()
        self.learned: dict[str, int] = {}
        """Windows that providers named when they refused a request, by model."""
        self._calibrations: dict[str, Calibration] = {}
        self._asked: dict[str, Asked] = {}
        self._reported: dict[str, tuple[int, int, int, int, str]] = {}
        self._views: dict[str, GrowingView] = {}
        self._terms: Terms | None = None

    def in_use(self, settings: Settings) -> str:
        """The model that the next request goes to: that of the endpoint which is asked first just now."""
        return settings.intelligence.model if self._serving is None else self._serving()

    def window(self, settings: Settings) -> Window:
        """The window of the model in use, and who said so."""
        model = self.in_use(settings)
        return model_window(model, configured=settings.context.model_window, learned=self.learned.get(model))

    def situation(
        self,
        held: Context,
        settings: Settings,
        standing: Standing,
        closing: tuple[Message, ...],
        *,
        work: Work,
        bodies: Mapping[str, str],
    ) -> Situation:
        """What a reduction of this context rests on right now."""
        terms = self.terms_of(settings)
        fixed = Fixed(
            self._measured(standing),
            self._counter.measure([standing.prompt]),
            self._counter.measure(closing),
            terms.output,
        )
        asked = self._asked.get(held.id)
        conditions = Conditions(
            terms.window,
            fixed,
            self._counter,
            self._calibration(terms.model, standing.tools),
            terms.rates,
            asked is not None and asked.model == terms.model and self._clock() - asked.at < WARM,
            standing.read_only,
        )
        found = Situation(terms.reduction, conditions, terms.summariser, work, bodies, SUMMARY_TIMEOUT)
        return replace(found, conversation=lambda: self._conversation(held, settings, standing, found))

    def _conversation(
        self, held: Context, settings: Settings, standing: Standing, situation: Situation
    ) -> Conversation | None:
        """What would be sent next, where the provider's cache has most of it and the model is to write the summary."""
        conditions, asked = situation.conditions, self._asked.get(held.id)
        is_its_own = situation.summariser.model == settings.intelligence.model
        if asked is None or not self._repairs or not conditions.warm or conditions.rates is None or not is_its_own:
            return None
        now = self.prepare(held, settings, standing, (), situation)
        if first_difference(asked.layout, now.layout) is not None:
            return None
        # The end of the tail is not marked: behind a compaction nobody reads it.
        sent = sum(len(part.messages) for part in asked.layout.segments if part.kind != "volatile")
        hint = now.request.cache_hint
        marks = tuple([mark for mark in hint if mark.position <= sent]) if isinstance(hint, tuple) else hint
        size = now.size.tokens
        return Conversation(
            replace(now.request, cache_hint=marks or True), size, min(asked.kept, size), conditions.rates
        )

    def terms_of(self, settings: Settings) -> Terms:
        """What settings and model alone say: worked out once for each of them."""
        model, known = self.in_use(settings), self._terms
        learned = self.learned.get(model)
        if known is None or known.settings is not settings or (known.model, known.learned) != (model, learned):
            known = self._terms = self._made_terms(settings, model, self.window(settings).tokens, learned)
        return known

    def _made_terms(self, settings: Settings, model: str, window: int, learned: int | None) -> Terms:
        how = settings.context.summarize
        asking = how.model or settings.intelligence.model
        its_window = model_window(asking, learned=self.learned.get(asking)).tokens if how.model else window
        summariser = Summariser(asking, its_window, min(SUMMARY_OUTPUT, max(its_window // 4, 1)))
        if how.prompt is not None:
            summariser = replace(summariser, prompt=how.prompt)
        output = min(settings.intelligence.max_output, max(window // 4, 1))
        return Terms(settings, model, window, learned, output, rates(model), reduction_of(settings, window), summariser)

    def prepare(
        self, held: Context, settings: Settings, standing: Standing, closing: tuple[Message, ...], situation: Situation
    ) -> Prepared:
        """The request as it would be sent now, with its size."""
        shown, size = self._sized(held, situation)
        layout = self._layout(shown, standing, closing)
        asked = self._asked.get(held.id)
        marks = layout.breakpoints(previous=asked.layout if asked is not None else None)
        messages = tuple(layout.messages())
        if not self._repairs:
            view = self._views.get(held.id) or self._views.setdefault(held.id, GrowingView())
            messages, marks = view.messages(messages, prefix=1), ()  # places are those of the layout
        request = ChatRequest(
            messages,
            settings.intelligence.model,
            standing.tools or None,
            max_tokens=situation.conditions.fixed.output,
            temperature=None,
            cache_hint=marks or True,
            prefix=1,
            options=self._options,
        )
        last = next((one.n for one in reversed(shown) if one.n is not None), 0)
        return Prepared(request, size, layout, last, situation.conditions.fixed.volatile)

    def _sized(self, held: Context, situation: Situation) -> tuple[list[Shown], RequestSize]:
        """What is shown, and how large the request is with it."""
        state, conditions, settings = held.state, situation.conditions, situation.settings
        room = settings.summary_room(conditions.window), int(RULE_SHARE * conditions.window)
        shown = held.showing.of(
            state,
            situation.bodies,
            room,
            lambda: shown_messages(
                held.view, held.entries, held.id, settings, conditions, bodies=situation.bodies, known=held.known
            ),
        )
        anchor = state.anchor
        if anchor is not None and (anchor.version != state.version or anchor.input_tokens <= 0):
            anchor = None
        since = held.showing.since(anchor.entry) if anchor is not None else 0
        return shown, size_of(held.showing.segments(), conditions, anchor=anchor, since=since)

    def answered(self, held: Context, prepared: Prepared, usage: Usage) -> Miss | None:
        """Learn from what the provider reported for a request. Whether its cache had less of it than it should."""
        kept = usage.cache_read_tokens + usage.cache_write_tokens
        # Who failed rests, so the endpoint that is asked first now is the one that has answered.
        model = prepared.request.model or "" if self._serving is None else self._serving()
        asked, last = Asked(self._clock(), prepared.layout, kept, model), self._asked.get(held.id)
        self._asked[held.id] = asked
        if usage.prompt_tokens <= 0:
            return None
        segments = prepared.size.segments
        now = (held.state.version, prepared.last, usage.prompt_tokens - prepared.volatile,
               segments["summary"] + segments["skills"] + segments["tail"], model)  # fmt: skip
        before = self._reported.get(held.id)
        if before is not None and (before[0], before[4]) == (now[0], model) and before[1] < now[1]:
            seen = Observation(now[3] - before[3], max(now[2] - before[2], 0))
            self._calibrations[model] = self._calibration(model, prepared.request.tools or ()).learn(seen)
        self._reported[held.id] = now
        return None if last is None else missed(last, asked, usage.cache_read_tokens)

    def measured(self, request: ChatRequest) -> int:
        """Estimated prompt tokens of a request that is no conversation's: a summary, a thought."""
        tokens = self._counter.measure(request.messages) + self._counter.measure(
            _texts(canonical_tools(request.tools or ()))
        )
        return round(tokens * self._calibration(request.model or "").factor)

    def forget(self, id: str) -> None:
        """A context left memory."""
        self._asked.pop(id, None)
        self._reported.pop(id, None)
        self._views.pop(id, None)

    def _calibration(self, model: str, tools: tuple[ToolSchema, ...] = ()) -> Calibration:
        """What was learned of a model, else what is known of it beforehand, what it adds for tools included."""
        return self._calibrations.get(model) or Calibration.seed(model, tools=tools)

    def _measured(self, standing: Standing) -> int:
        """Estimated tokens of the tools."""
        return derived(standing, "_tool_tokens", lambda _: self._counter.measure(_texts(standing.canonical)))

    def _layout(self, shown: list[Shown], standing: Standing, closing: tuple[Message, ...]) -> Layout:
        messages = [one.message for one in shown]
        at = 1 if messages and marked(messages[0], "summary") is not None else 0
        return Layout(
            (
                Segment("frozen", (standing.prompt,)),
                Segment("summary", tuple(messages[:at])),
                Segment("tail", tuple(messages[at:])),
                Segment("volatile", closing),
            ),
            standing.canonical,
        )


def missed(before: Asked, now: Asked, read: int) -> Miss | None:
    """What the request `now`, of which `read` tokens came from the cache, should have found there and did not."""
    if before.kept - read < max(MISS_TOKENS, MISS_SHARE * before.kept):
        return None
    if before.model != now.model:
        return Miss(None, "model", before.kept, read)
    difference = first_difference(before.layout, now.layout)
    if difference is not None:
        return Miss(difference.segment, difference.reason, before.kept, read)
    return Miss(None, "expired" if now.at - before.at >= WARM else "unexplained", before.kept, read)


def _texts(tools: Sequence[str]) -> list[Message]:
    return [Message("system", text) for text in tools]


@lru_cache(16)
def closing_block(volatile: str) -> tuple[Message, ...]:
    """The text of the volatile part as what closes a request; nothing for none."""
    return (Message("user", frame("runtime-state", volatile, by="the runtime, not a person")),) if volatile else ()


def reduction_of(settings: Settings, window: int) -> Reduction:
    """The operator's settings as the reduction takes them."""
    given = settings.context
    return Reduction(
        compact_at=given.compact_at,
        compact_to=given.compact_to,
        keep_last=given.keep_last,
        part_max=given.part_max.within(window),
        part_share=1.0,
        min_gain=given.min_gain,
        horizon_turns=given.horizon_turns,
        keep_user_tokens=given.keep_user_tokens.within(window),
        keep_user_share=1.0,
        mask_keep_rounds=given.mask.keep_rounds,
        mask_min_gain=given.mask.min_gain.within(window),
        mask_share=1.0,
        mask_exempt=frozenset(name.replace(".", "_") for name in given.mask.exempt) | frozenset(given.mask.exempt),
        summary_tokens=given.summary.max_tokens,
        reference_prefix=settings.skills.reference_prefix,
    )
