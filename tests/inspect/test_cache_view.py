"""What a report says of the prompt cache: figures that add up, breaks with reasons, and other ways to send the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest

from agentkit.core.contracts.types import Message, ToolCall, Usage
from agentkit.inspect import inspect_transcript
from agentkit.inspect.cache_values import CacheView
from agentkit.inspect.columns import WIDTH, Style, width_of
from agentkit.inspect.shape import json_document, to_shape
from agentkit.inspect.text import render_cache, render_text
from agentkit.models.catalog import quote
from agentkit.models.usage import UsageReading, read_usage
from agentkit.transcripts import Transcript, load
from tests.inspect.samples import UNPRICED, broken, compacted, hostile, response, session, transcript
from tests.transcripts.samples import FOLDER

CODING = FOLDER / "claude-code" / "small-edit-session.jsonl"
MADE: list[Callable[[], Transcript]] = [session, broken, compacted, hostile]


def coding() -> Transcript:
    (found,) = load(CODING)
    return found


def billed_by(read: int, write: int) -> UsageReading:
    figures = {"cache_read_input_tokens": read, "cache_creation_input_tokens": write}
    return read_usage({"input_tokens": 3, "output_tokens": 90, **figures}, "anthropic")


def view(made: Transcript) -> CacheView:
    found = inspect_transcript(made).cache
    assert found is not None
    return found


@pytest.mark.parametrize("made", [*MADE, coding], ids=lambda made: made.__name__)
def test_figures_add_up_with_the_rest_of_the_report(made: Callable[[], Transcript]) -> None:
    one = inspect_transcript(made())
    found = one.cache
    assert found is not None
    assert [row.number for row in found.requests] == [response.number for response in one.responses]
    for row, seen in zip(found.requests, one.responses, strict=True):
        if seen.usage is None:
            assert (row.read, row.write, row.fresh) == (None, None, None)
        elif row.reason == "unreported":
            assert (row.read, row.write, row.fresh) == (None, None, seen.usage.input_tokens)
        else:
            billed = (seen.usage.cache_read_tokens, seen.usage.cache_write_tokens, seen.usage.input_tokens)
            assert (row.read, row.write, row.fresh) == billed
    recorded = found.scenario("recorded")
    if found.compared == len(one.responses):
        assert recorded is not None
        assert (recorded.usage, recorded.cost) == (one.usage, one.cost)
    for scenario in found.scenarios:
        assert recorded is not None
        assert scenario.usage.prompt_tokens == recorded.usage.prompt_tokens
        assert scenario.usage.output_tokens == recorded.usage.output_tokens
    assert found.lost == sum(kind.lost for kind in found.breaks)


def test_breaks_have_their_reason_and_their_price() -> None:
    found = view(broken())
    assert [row.reason for row in found.requests] == ["none", "none", "none", "expired", "none", "unexplained"]
    expired, dropped = found.requests[3], found.requests[5]
    assert (expired.lost, expired.detail) == (30_400, "660 s after the request before")
    assert expired.lost_usd == Decimal(30_400) * (Decimal("3.75") - Decimal("0.30")) / 1_000_000
    assert dropped.lost == 30_800
    assert [(kind.reason, kind.count) for kind in found.breaks] == [("unexplained", 1), ("expired", 1)]
    assert found.lost_cost.usd == sum(kind.usd for kind in found.breaks if kind.usd is not None)


def test_the_providers_word_on_a_break_stands_beside_ours() -> None:
    made = broken()
    said = {"diagnostics": {"cache_miss_reason": {"type": "unavailable", "cache_missed_input_tokens": 30_000}}}
    place = made.responses[5].index
    assert place is not None
    answer = replace(made.history[place], meta={"anthropic": said})
    history = (*made.history[:place], answer, *made.history[place + 1 :])
    row = view(replace(made, history=history)).requests[5]
    assert row.reason == "unexplained"
    assert row.detail.endswith("; the provider says unavailable, 30,000 tokens missed")


def test_other_ways_to_send_the_same_requests() -> None:
    found = view(broken())
    by_name = {one.name: one for one in found.scenarios}
    uncached, recorded, library, kept, best = (
        by_name[name] for name in ("uncached", "recorded", "library", "library_kept", "best")
    )
    assert "library_long" not in by_name, "an hour costs more here than one pause of ten minutes"
    assert uncached.usage.cache_read_tokens == uncached.usage.cache_write_tokens == 0
    whole = sum(r.usage.prompt_tokens for r in broken().responses if r.usage)
    assert uncached.usage.input_tokens == whole
    # The pause of ten minutes breaks the five minutes of the plan too, the drop hits every way but the one without it.
    assert library.usage.cache_read_tokens == recorded.usage.cache_read_tokens + 3 * 3
    assert kept.usage.cache_read_tokens - library.usage.cache_read_tokens == 30_803
    assert best.usage.cache_read_tokens >= library.usage.cache_read_tokens
    for one in found.scenarios:
        assert one.cost.is_known
        assert one.cost.usd is not None
    assert library.cost.usd is not None
    assert uncached.cost.usd is not None
    assert library.cost.usd < uncached.cost.usd


def test_a_longer_lifetime_is_told_of_where_it_is_cheaper() -> None:
    made = broken()
    slow = tuple(replace(one, time=f"2026-03-01T10:{9 * n:02}:00Z") for n, one in enumerate(made.responses))
    found = view(replace(made, responses=slow))
    library, long = found.scenario("library"), found.scenario("library_long")
    assert library is not None
    assert long is not None
    assert library.usage.cache_read_tokens == 0
    assert long.usage.cache_read_tokens > 100_000
    assert long.usage.cache_write_long_tokens == long.usage.cache_write_tokens > 0
    assert "at the longer lifetime" in render_cache([inspect_transcript(replace(made, responses=slow))])


def test_the_library_reads_what_the_client_of_the_sample_read() -> None:
    """The client of this sample marks well: the plan is to be no worse."""
    found = view(coding())
    recorded, library, best = (found.scenario(name) for name in ("recorded", "library", "best"))
    assert recorded is not None
    assert library is not None
    assert best is not None
    assert found.compared == 7
    assert library.usage.cache_read_tokens >= recorded.usage.cache_read_tokens
    assert library.usage.cache_read_tokens >= 0.98 * best.usage.cache_read_tokens
    assert [row.reason for row in found.requests] == ["none"] * 7


def test_what_is_unknown_is_never_nought() -> None:
    for made in (session(model=UNPRICED), hostile()):
        found = view(made)
        assert (found.rules, found.scenarios, found.breaks, found.compared) == (None, (), (), 0)
        assert found.note.startswith("no cache rules are known for ")
        text = render_cache([inspect_transcript(made)])
        assert "breaks  unknown" in text
        assert "$0" not in text
    nameless = transcript([Message("user", "a"), Message("assistant", "b")])
    assert view(nameless).note == "the record names no model"
    assert [(row.read, row.reason) for row in view(nameless).requests] == [(None, None)]
    told = render_cache([inspect_transcript(nameless)])
    assert "unknown" in told
    assert "agentkit reads" not in told, "a table of nothing but unknown figures is none"
    assert "agentkit reads" in render_cache([inspect_transcript(session(model=UNPRICED))])
    nothing = inspect_transcript(transcript([Message("user", "a")]))
    assert nothing.cache is not None
    assert nothing.cache.note == "no responses in the record"
    assert "no response in the record" in render_cache([nothing])


def test_rules_without_a_price_give_tokens_and_no_money() -> None:
    found = view(broken(model="claude-of-tomorrow"))
    assert found.rules == "anthropic"
    assert found.lost == 61_200
    assert (found.lost_cost.usd, found.lost_cost.is_known) == (None, False)
    library = found.scenario("library")
    assert library is not None
    assert library.cost.usd is None
    text = render_cache([inspect_transcript(broken(model="claude-of-tomorrow"))])
    assert "61,200 tokens paid again, unknown more" in text
    assert "$0" not in text


def test_unreported_cache_figures_are_told_from_nought() -> None:
    found = view(compacted())
    assert {row.reason for row in found.requests} == {"unreported"}
    recorded = found.scenario("recorded")
    assert recorded is not None
    assert recorded.read_share is None
    text = render_cache([inspect_transcript(compacted())])
    assert "breaks  unknown" in text
    assert "less than without a cache" in text


def test_a_compaction_is_a_break_of_its_own() -> None:
    made = compacted()
    figures = [(0, 30_000), (30_000, 200), (30_200, 200)]
    found = []
    for number, one in enumerate(r for r in made.responses if r.index is not None):
        read, write = figures[number] if number < 3 else (29_000, 500)
        found.append(replace(response(one.index, minute=number), reading=billed_by(read, write)))
    rows = view(replace(made, responses=tuple(found))).requests
    assert rows[8].reason == "compacted"
    assert rows[1].reason == rows[2].reason == "none"


def test_openai_models_are_planned_by_their_own_rules() -> None:
    history: list[Message] = []
    responses = []
    for turn in range(4):
        history += [Message("user", "word " * 2000), Message("assistant", "word " * 100)]
        figures = read_usage({"input_tokens": 2000 * (turn + 1), "output_tokens": 90}, "openai_responses")
        responses.append(replace(response(len(history) - 1, model="gpt-5.6-sol", minute=turn), reading=figures))
    found = view(transcript(history, responses))
    library = found.scenario("library")
    assert found.rules == "openai-56"
    assert library is not None
    assert [row.planned.cache_read_tokens for row in found.requests if row.planned] == [0, 2000, 4000, 6000]
    automatic = view(transcript(history, [replace(r, model="gpt-4o") for r in responses]))
    assert automatic.rules == "openai"
    assert [row.planned.cache_read_tokens for row in automatic.requests if row.planned] == [0, 1920, 3968, 5888]


def test_savings_are_weighed_by_the_calls_that_came() -> None:
    history: list[Message] = []
    responses = []
    for turn in range(40):
        history.append(Message("user", "go on"))
        call = ToolCall(f"c{turn}", "read", {})
        history.append(Message("assistant", tool_calls=(call,)))
        billed = billed_by(1100 * turn, 1100)
        responses.append(replace(response(len(history) - 1, minute=turn), reading=billed))
        history.append(Message("tool", "line of output\n" * 300, "read", call.id))
    found = view(transcript(history, responses))
    assert {one.name for one in found.savings} == {"mask", "compact"}
    for one in found.savings:
        assert one.dropped > one.added
        assert one.net_usd == pytest.approx(one.verdict.saved_per_call * one.calls - one.verdict.cost_now)
        assert one.verdict.pays == (one.net_usd > 0)
        assert one.calls == 40 - one.number
        assert one.later is not None
    text = render_cache([inspect_transcript(transcript(history, responses))])
    assert "old tool results masked before response" in text
    assert "Calls from which on it would pay now" in text


def test_shortening_is_free_once_the_cache_has_expired() -> None:
    history: list[Message] = []
    responses = []
    for turn in range(40):
        history.append(Message("user", "go on"))
        call = ToolCall(f"c{turn}", "read", {})
        history.append(Message("assistant", tool_calls=(call,)))
        expired = turn == 23
        billed = billed_by(0, 1100 * turn + 1100) if expired else billed_by(1100 * turn, 1100)
        minute = turn + (10 if turn >= 23 else 0)
        responses.append(replace(response(len(history) - 1, minute=minute), reading=billed))
        history.append(Message("tool", "line of output\n" * 300, "read", call.id))
    found = view(transcript(history, responses))
    mask = next(one for one in found.savings if one.name == "mask")
    assert (mask.number, mask.warm) == (24, False)
    assert mask.verdict.cost_now < 0 < mask.net_usd
    text = render_cache([inspect_transcript(transcript(history, responses))])
    assert "at once, since the cache had" in text.replace("\n    ", " ")


def test_responses_without_a_message_stay_in_the_table_and_out_of_the_comparison() -> None:
    found = view(compacted())
    assert len(found.requests) == 12
    assert found.compared == 11
    assert found.requests[8].planned is None
    assert "11 of 12 requests can be rebuilt and compared" in found.note


def test_without_recorded_usage_sizes_are_estimates_and_nothing_is_recorded() -> None:
    made = session()
    found = view(replace(made, responses=tuple(replace(one, reading=None) for one in made.responses)))
    assert found.basis == "estimated"
    assert [one.name for one in found.scenarios] == ["uncached", "library", "best"]
    assert {(row.read, row.write, row.fresh, row.reason) for row in found.requests} == {(None, None, None, None)}
    library = found.scenario("library")
    assert library is not None
    assert library.usage.cache_read_tokens > 0
    one = inspect_transcript(replace(made, responses=tuple(replace(r, reading=None) for r in made.responses)))
    text = render_cache([one])
    assert "sizes are estimates" in text
    assert "less than without a cache" in text
    assert text.count("unknown") >= 6 * 4


def test_a_switch_of_the_model_is_a_break() -> None:
    made = broken()
    switched = (*made.responses[:2], replace(made.responses[2], model="claude-opus-5"), *made.responses[3:])
    cold = replace(switched[2], reading=billed_by(0, 30_400))
    found = view(replace(made, responses=(*switched[:2], cold, *switched[3:])))
    assert found.requests[2].reason == "model_changed"
    assert found.requests[2].lost == 30_200


def test_a_response_of_several_models_is_not_compared() -> None:
    made = broken()
    reading = made.responses[1].reading
    assert reading is not None
    advised = replace(reading, other_models=(("claude-opus-5", Usage(100, 10)),))
    found = view(
        replace(made, responses=(made.responses[0], replace(made.responses[1], reading=advised), *made.responses[2:]))
    )
    assert (found.compared, found.requests[1].planned) == (5, None)
    assert found.requests[1].fresh == 103


def test_copied_times_are_no_times() -> None:
    made = broken()
    same = tuple(replace(one, time="2026-03-01T10:00:00Z") for one in made.responses)
    found = view(replace(made, responses=same))
    assert found.requests[3].reason == "unexplained"
    assert "nor how long the pause was" in found.requests[3].detail
    assert "times" in found.assumed


@pytest.mark.parametrize("style", [Style(colour=True), Style(unicode=False)], ids=["colour", "ascii"])
@pytest.mark.parametrize("made", [*MADE, coding], ids=lambda made: made.__name__)
def test_lines_keep_to_the_width(made: Callable[[], Transcript], style: Style) -> None:
    for text in (
        render_cache([inspect_transcript(made())] * 2, style),
        render_text([inspect_transcript(made())], style),
    ):
        for line in text.splitlines():
            bare = line.replace("\x1b[0m", "").replace("\x1b[1m", "").replace("\x1b[2m", "")
            bare = bare.replace("\x1b[31m", "").replace("\x1b[33m", "")
            assert width_of(bare) <= WIDTH
            assert "\x1b" not in bare
            assert style.unicode or line.isascii()


@pytest.mark.parametrize("made", [*MADE, coding], ids=lambda made: made.__name__)
def test_json_holds_the_view(made: Callable[[], Transcript]) -> None:
    (one,) = json.loads(json_document(to_shape([inspect_transcript(made())])))["conversations"]
    cache = one["cache"]
    assert len(cache["requests"]) == len(one["responses"])
    assert cache["lost"] == sum(kind["lost"] for kind in cache["breaks"])
    assert {"number", "read", "write", "fresh", "reason", "cause", "detail", "lost", "lost_usd", "planned"} == set(
        cache["requests"][0]
    )


def test_the_same_conversation_gives_the_same_view() -> None:
    assert view(coding()) == view(coding())


def test_the_pause_is_bounded_by_what_stands_between_two_known_times() -> None:
    """Both requests in between read all that was left, so each came within five minutes of the one before: what they
    leave of two hours is the least that the last pause can have been."""
    made = broken()
    history = list(made.history)
    for at, time in ((2, "2026-03-01T08:00:00Z"), (8, "2026-03-01T10:00:00Z")):
        history[at] = replace(history[at], meta={"time": time})
    copied = tuple(replace(one, time="2026-03-01T12:00:00Z") for one in made.responses)
    reads = (0, 30_000, 30_200, 30_400, 0, 30_800)
    sizes = zip(reads, (30_000, 200, 200, 200, 30_800, 200), copied, strict=True)
    responses = tuple(replace(one, reading=billed_by(read, write)) for read, write, one in sizes)
    context = replace(transcript(history, responses), history=tuple(history))
    row = view(context).requests[4]
    assert (row.reason, row.detail) == ("expired", "at least 6,600 s after the request before")
    early = replace(history[8], meta={"time": "2026-03-01T08:12:00Z"})
    close = [*history[:8], early, *history[9:]]
    assert view(transcript(close, responses)).requests[4].reason == "unexplained"


def test_prices_of_the_time_hold() -> None:
    """A request is priced at its own date in every way to send it."""
    found = view(broken(model="claude-sonnet-5-5"))
    first = broken(model="claude-sonnet-5-5").responses[0]
    assert first.usage is not None
    priced = quote("claude-sonnet-5-5", first.usage, at=None)
    assert found.requests[0].costs[0] == priced.usd
