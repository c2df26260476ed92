"""Inspections say what contexts, catalogue and checks say, and add up."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.types import (
    Block,
    DocumentBlock,
    ImageBlock,
    Message,
    NativeBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    Usage,
    marked,
)
from agentkit.inspect import Inspection, inspect_transcript
from agentkit.inspect.measure import count_transcript
from agentkit.inspect.pieces import EXCERPT, LARGEST, excerpt
from agentkit.models.catalog.compact import quote
from agentkit.state.context import ApproxTokenCounter, CharClassTokenCounter, WorkingContext
from agentkit.state.context.tokens import AdditiveCounter
from agentkit.transcripts import Transcript, load
from agentkit.transcripts.report import Finding as Recorded
from tests.inspect.samples import UNPRICED, compacted, hostile, response, session, transcript

SESSION = Path(__file__).resolve().parents[2] / "examples" / "transcripts" / "worktree-long.jsonl"
COUNTERS: Sequence[AdditiveCounter] = (ApproxTokenCounter(), CharClassTokenCounter())
MADE: Sequence[Callable[[], Transcript]] = (session, compacted, hostile)


@pytest.mark.parametrize("counter", COUNTERS, ids=lambda counter: counter.key)
@pytest.mark.parametrize("made", MADE, ids=lambda made: made.__name__)
def test_tables_add_up(made: Callable[[], Transcript], counter: AdditiveCounter) -> None:
    one = inspect_transcript(made(), counter=counter)
    check_sums(one)
    assert one.tokens == count_transcript(made(), counter)


def check_sums(one: Inspection) -> None:
    """Each table has the total of the record, but for rounding once a row."""
    whole = one.tokens - one.tool_schema_tokens
    assert abs(sum(share.tokens for share in one.roles) - whole) <= len(one.roles)
    assert abs(sum(share.tokens for share in one.kinds) - whole) <= len(one.kinds)
    assert sum(share.count for share in one.roles) == one.messages
    results = sum(share.tokens for share in one.roles if share.name == "tool")
    assert abs(sum(tool.result_tokens for tool in one.tools) - results) <= len(one.tools) + 1
    assert one.calls == sum(tool.calls for tool in one.tools)


def test_whole_record_is_the_estimate() -> None:
    """The total is what the one estimator says of the same request."""
    made = session()
    one = inspect_transcript(made, counter=ApproxTokenCounter())
    context = WorkingContext(made.context.prefix, made.context.messages)
    layout = context.segments(tools=made.tools)
    assert abs(one.tokens - layout.tokens) <= 2
    assert one.next_request.total == layout.tokens


@pytest.mark.parametrize("made", [session, compacted], ids=lambda made: made.__name__)
def test_requests_are_sized_like_contexts(made: Callable[[], Transcript]) -> None:
    """The estimate in front of each response is that of a context with the messages up to there."""
    recorded = made()
    counter = CharClassTokenCounter()
    one = inspect_transcript(recorded, counter=counter)
    start = len(recorded.context.prefix.rendered)
    for seen in one.responses:
        if seen.place is None:
            assert seen.estimate is None
            continue
        tail = list(recorded.history[start : seen.place])
        for compaction in recorded.compactions:
            if compaction.index < seen.place:
                kept = [recorded.history[at] for at in compaction.kept]
                tail = [recorded.history[compaction.index], *kept, *recorded.history[compaction.index + 1 : seen.place]]
        layout = WorkingContext(recorded.context.prefix, tail, token_counter=counter).segments(tools=recorded.tools)
        sizes = [layout.segment(kind).tokens for kind in ("frozen", "summary", "tail")]
        assert seen.estimate is not None
        assert [seen.estimate.frozen, seen.estimate.summary] == sizes[:2]
        assert abs(seen.estimate.tail - sizes[2]) <= 1


def test_compaction_shows() -> None:
    one = inspect_transcript(compacted())
    (folding,) = one.foldings
    assert (folding.trigger, folding.tokens_before, folding.tokens_after) == ("auto", 2_600, 420)
    assert [seen.number for seen in one.responses if seen.compacted] == [10]
    before, after = one.responses[7].estimate, one.responses[9].estimate
    assert before is not None
    assert after is not None
    assert before.summary == 0 < after.summary
    assert after.tail < before.tail


def test_summary_is_no_turn_of_the_user() -> None:
    made = compacted()
    assert inspect_transcript(made).user_turns == sum(m.role == "user" for m in made.history) - 1
    injected = Message("user", "<env>", meta={"injected": True})
    assert inspect_transcript(transcript([injected, Message("user", "hello")])).user_turns == 1


def test_messages_never_sent_are_in_no_request() -> None:
    """A client's own error is in the record and in the tables, but in no request."""
    said, error, again = Message("user", "hello"), Message("assistant", "API error " * 90), Message("user", "again")
    answer = Message("assistant", "yes")
    made = transcript([said, error, again, answer], [response(3)], tail=[said, again, answer])
    one = inspect_transcript(made)
    plain = inspect_transcript(transcript([said, again, answer], [response(2)]))
    assert one.responses[0].estimate == plain.responses[0].estimate
    assert one.tokens > plain.tokens


# -- cost --------------------------------------------------------------------------------------------------------------


def test_costs_are_sums_of_quotes() -> None:
    made = session()
    one = inspect_transcript(made)
    expected = sum((quote(r.model, r.usage or Usage()).usd for r in made.responses), Decimal(0))
    assert one.cost.is_known
    assert one.cost.usd == expected > 0
    assert one.usage == made.usage


def test_cost_without_price_is_unknown() -> None:
    one = inspect_transcript(session(model=UNPRICED))
    assert one.cost.usd is None
    assert not one.cost.is_known
    assert one.cost.reasons == ("unknown_model",)
    assert all(seen.cost.usd is None for seen in one.responses)


def test_cost_with_some_prices_is_no_whole() -> None:
    history = [Message("user", "a"), Message("assistant", "b"), Message("user", "c"), Message("assistant", "d")]
    known, unknown = (response(1, input_tokens=1_000, output_tokens=100), response(3, model=UNPRICED, input_tokens=5))
    one = inspect_transcript(transcript(history, [known, unknown]))
    assert (one.cost.priced, one.cost.responses) == (1, 2)
    assert one.cost.usd == Decimal("0.0045")
    assert not one.cost.is_known


def test_totals_alone_have_no_price() -> None:
    made = transcript([Message("user", "a"), Message("assistant", "b")], usage=Usage(1_000, 50, 0.25))
    one = inspect_transcript(made)
    assert one.usage == Usage(1_000, 50, 0.25)
    assert one.cost.usd is None
    assert one.cost.reasons == ("totals_only",)
    assert one.recorded_usd == Decimal("0.25")


def test_no_usage_is_not_zero() -> None:
    one = inspect_transcript(transcript([Message("user", "a"), Message("assistant", "b")]))
    assert one.usage is None
    assert one.cost.usd is None
    assert len(one.responses) == 1
    assert one.responses[0].reported is None


# -- accuracy ----------------------------------------------------------------------------------------------------------


def test_accuracy_compares_growth() -> None:
    one = inspect_transcript(session())
    found = one.accuracy
    first, last = one.responses[0], one.responses[-1]
    assert first.estimate is not None
    assert last.estimate is not None
    assert found.pairs == len(one.responses) - 1
    assert found.reported == (last.reported or 0) - (first.reported or 0)
    assert found.estimated == last.estimate.total - first.estimate.total
    assert found.error == pytest.approx(found.estimated / found.reported - 1)


def test_accuracy_skips_a_compaction() -> None:
    one = inspect_transcript(compacted())
    assert one.accuracy.pairs == 7 + 2
    assert one.accuracy.reported == 7 * 300 + 2 * 300


def test_accuracy_without_reports_is_unknown() -> None:
    one = inspect_transcript(transcript([Message("user", "a"), Message("assistant", "b")]))
    assert one.accuracy.error is None
    assert one.accuracy.unseen is None


# -- parts and findings ------------------------------------------------------------------------------------------------


def test_largest_parts_are_ranked() -> None:
    one = inspect_transcript(session(turns=20))
    assert len(one.largest) == LARGEST
    assert [part.tokens for part in one.largest] == sorted((part.tokens for part in one.largest), reverse=True)
    assert one.largest[0].kind == "result"
    assert all(len(part.excerpt) <= EXCERPT for part in one.largest)
    made = session(turns=20)
    assert all(part.chars == len(made.history[part.place].content) for part in one.largest if part.kind == "result")


def test_kinds_of_content_are_told_apart() -> None:
    blocks: list[Block] = [
        TextBlock("text"),
        ThinkingBlock("thought", "sig"),
        ImageBlock(b"\x89PNG" * 100, "image/png", 300, 300),
        DocumentBlock("file-1", "application/pdf", pages=2),
        NativeBlock("anthropic", {"type": "server_tool_use", "id": "x"}),
    ]
    history = [Message("user", "q"), Message("assistant", blocks, tool_calls=[ToolCall("1", "Bash", {"a": 1})])]
    history.append(Message("tool", "out", "Bash", "1"))
    one = inspect_transcript(transcript(history))
    counts = {share.name: share.count for share in one.kinds}
    assert counts == {
        "text": 2, "thinking": 1, "image": 1, "document": 1, "native": 1, "call": 1, "result": 1, "overhead": 3,
    }  # fmt: skip
    assert {share.name: share.tokens for share in one.kinds}["document"] == 4_000
    check_sums(one)


def test_excerpts_leave_decoration_out() -> None:
    text = "\x1b[36m╭────╮\n│ \x1b[1mhook\x1b]8;;https://x.example\x1b\\ ran\x1b[0m │\n" + "word " * 90
    assert excerpt(text).startswith("hook ran word word")
    assert excerpt(text).endswith("…")
    assert excerpt("short\n text") == "short text"
    assert excerpt("") == ""
    assert len(excerpt(" " * 5_000 + "x")) <= EXCERPT


def test_findings_come_worst_first() -> None:
    recorded = [
        Recorded("note", "joined", "line 3", "joined", "one response"),
        Recorded("loss", "line broken", "line 9", "left out", "no JSON"),
        Recorded("loss", "line broken", "line 12", "left out", "cut off"),
    ]
    history = [Message("user", "q"), Message("assistant", "", tool_calls=[ToolCall("1", "Bash")])]
    one = inspect_transcript(transcript(history, findings=recorded))
    assert [(f.source, f.level, f.kind, f.count) for f in one.findings] == [
        ("import", "loss", "line broken", 2),
        ("import", "note", "joined", 1),
        ("check", "problem", "unanswered", 1),
    ]
    assert one.findings[0].places == ("line 9", "line 12")
    assert [f.detail for f in one.findings[:2]] == ["left out; first: no JSON", "joined; one response"]
    assert one.findings[2].places == ("message 1",)


def test_shipped_session_reads_as_known() -> None:
    """The session that `make run` replays; the figures were counted in its records by other means."""
    (recorded,) = load(SESSION)
    one = inspect_transcript(recorded)
    assert (len(one.responses), one.calls, one.errors) == (170, 152, 22)
    assert (one.responses[0].reported, one.responses[-1].reported) == (286_513, 534_859)
    assert one.usage is not None
    assert one.usage.prompt_tokens == sum(r.reported or 0 for r in one.responses)
    assert one.cost.is_known
    assert one.tools[0].name == "Bash"
    check_sums(one)


# -- laws --------------------------------------------------------------------------------------------------------------

TEXTS = st.text(max_size=40) | st.just("\ud800") | st.just("漢字" * 10) | st.just("<|endoftext|>")


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    made: list[Message] = []
    for _ in range(draw(st.integers(0, 8))):
        role = draw(st.sampled_from(["user", "assistant", "tool", "system", "function", ""]))
        content: Any = draw(TEXTS | st.lists(TEXTS.map(TextBlock) | TEXTS.map(ThinkingBlock), max_size=3))
        calls = [
            ToolCall(draw(TEXTS), draw(TEXTS), draw(st.just("{not json") | st.dictionaries(TEXTS, TEXTS, max_size=2)))
            for _ in range(draw(st.integers(0, 2)))
        ]
        name, call_id = draw(st.none() | TEXTS), draw(st.none() | TEXTS)
        made.append(Message(role, content, name, call_id, calls, is_error=draw(st.booleans())))
    return made


@given(histories(), st.sampled_from(COUNTERS))
def test_any_transcript_adds_up(history: list[Message], counter: AdditiveCounter) -> None:
    made = transcript(history)
    before = made.context.freeze()
    one = inspect_transcript(made, counter=counter)
    check_sums(one)
    assert made.context.freeze() == before


@dataclass(frozen=True)
class CountingCounter(CharClassTokenCounter):
    """Notes how often it is asked."""

    asked: list[int] | None = None

    def weigh(self, message: Message, /) -> tuple[int, int]:
        assert self.asked is not None
        self.asked[0] += 1
        return super().weigh(message)


def test_work_is_linear() -> None:
    """Twice the conversation takes twice the weighing, not four times."""

    def asked(turns: int) -> int:
        counter = CountingCounter(asked=[0])
        inspect_transcript(session(turns=turns), counter=counter)
        return counter.asked[0] if counter.asked else 0

    assert asked(400) <= 2.1 * asked(200)


def test_summary_mark_is_what_counts() -> None:
    """A compaction without a marked summary, as some clients record it, still starts the tail anew."""
    made = compacted()
    history = [m if marked(m, "summary") is None else Message("user", m.content) for m in made.history]
    at = made.compactions[0].index
    tail = [history[at], history[at - 1], *history[at + 1 :]]
    plain = replace(made, history=tuple(history), context=WorkingContext(messages=tail))
    one, other = inspect_transcript(plain), inspect_transcript(made)
    for mine, theirs in zip(one.responses, other.responses, strict=True):
        assert (mine.estimate is None) == (theirs.estimate is None)
        if mine.estimate is not None and theirs.estimate is not None:
            assert mine.estimate.summary == 0
            assert abs(mine.estimate.total - theirs.estimate.total) <= 1
