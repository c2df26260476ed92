"""The repair of a growing transcript is the repair of the transcript."""

from hypothesis import example, given
from hypothesis import strategies as st

from agentkit.core.contracts.messages import Message, ToolCall
from agentkit.core.contracts.validity import (
    ANTHROPIC,
    GEMINI,
    OPENAI_CHAT,
    OPENAI_RESPONSES,
    STRICT,
    GrowingView,
    Rules,
    repair,
)
from tests.strategies import transcripts, valid_transcripts

RULES = st.sampled_from([STRICT, ANTHROPIC, OPENAI_CHAT, OPENAI_RESPONSES, GEMINI])


def grown(messages: list[Message], steps: list[int], rules: Rules, prefix: int | None) -> None:
    """Ask for every beginning of the transcript that the steps name, and for the whole."""
    view = GrowingView(rules)
    for end in [*sorted(steps), len(messages)]:
        asked = tuple(messages[:end])
        assert view.repaired(asked, prefix=prefix) == repair(asked, rules, prefix=prefix)


@example([Message("user", "", is_error=True), Message("assistant", "done")], [], STRICT, None)
@given(transcripts(), st.lists(st.integers(0, 12)), RULES, st.sampled_from([None, 0, 1]))
def test_any_transcript_grows_as_repair_has_it(
    messages: list[Message], steps: list[int], rules: Rules, prefix: int | None
) -> None:
    grown(messages, steps, rules, prefix)


@given(valid_transcripts(), st.lists(st.integers(0, 20)), RULES)
def test_a_valid_transcript_grows_as_repair_has_it(messages: list[Message], steps: list[int], rules: Rules) -> None:
    grown(messages, steps, rules, None)


CHAT = st.lists(
    st.builds(
        Message,
        st.sampled_from(["user", "user", "assistant", "assistant", "system"]),
        st.sampled_from(["a", "b\n", "é", "", " ", "\u2003", "\ud800", "\ud83d\ude00"]),
        st.sampled_from([None, None, None, "n"]),
    ),
    max_size=12,
)


@given(CHAT, st.lists(st.integers(0, 12)), RULES, st.sampled_from([None, 0, 1]))
def test_a_chat_of_texts_grows_as_repair_has_it(
    messages: list[Message], steps: list[int], rules: Rules, prefix: int | None
) -> None:
    grown(messages, steps, rules, prefix)


@given(valid_transcripts(), valid_transcripts(), RULES)
def test_another_head_starts_anew(first: list[Message], second: list[Message], rules: Rules) -> None:
    view = GrowingView(rules)
    for messages in (tuple(first), tuple(second), (*first, *second)):
        assert view.repaired(messages) == repair(messages, rules)
        assert view.messages(messages) == repair(messages, rules).messages


def test_only_what_was_added_is_repaired() -> None:
    """A closing block that changes every time costs nothing of what stands in front of it."""
    view, messages = GrowingView(), [Message("system", "s")]
    for n in range(50):
        messages.append(Message("user", f"question {n}"))
        asked = (*messages, Message("user", f"it is {n} o'clock"))
        made = view.messages(asked, prefix=1)
        assert made == repair(asked, prefix=1).messages
        assert view.known == 4 * n
        messages.append(Message("assistant", "", tool_calls=(ToolCall(f"c{n}", "look", {}),)))
        messages.append(Message("tool", "seen", name="look", tool_call_id=f"c{n}"))
        messages.append(Message("assistant", f"answer {n}"))


def test_a_view_tells_whether_a_transcript_continues_what_it_knows() -> None:
    """Among several views the one that fits is found by identity, so that conversations do not push each other out."""
    first = [
        Message("user", "one"),
        Message("assistant", "two"),
        Message("user", "three"),
        Message("assistant", "four"),
    ]
    view = GrowingView()
    assert view.continues([])
    view.messages(first)
    assert view.known == 3
    assert view.continues([*first, Message("user", "five")])
    assert view.continues((*first, Message("user", "five")))
    assert view.continues(first[:3])
    assert not view.continues(first[:2])
    assert not view.continues([*first[:2], Message("user", "three"), first[3]])
    assert not view.continues([Message("user", "one"), *first[1:]])


def test_a_fork_may_ask_for_no_more_than_is_known() -> None:
    view = GrowingView()
    messages = [Message("user", "one"), Message("assistant", "two"), Message("user", "three")]
    view.messages(messages)
    assert view.known == 1
    assert view.repaired(messages[:1]) == repair(messages[:1])
    assert view.repaired(messages) == repair(messages)
