"""What the conversation of a subagent begins with: nothing, a summary of its parent's, or a fork of what is shown of
that. Touches only its arguments.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentd.context.messages import source
from agentd.context.record import AssistantMsg, Control, Entry, How, Masking, Msg, NoteMsg, ToolMsg
from agentd.context.resident import Context
from agentd.context.view import View, of_state
from agentkit.state.compaction import Summary, extract, render_summary

from .effects import open_calls, stand_in

STARTED = "You are the subagent that this call has started."


def seeds(how: str, parent: Context, call: str, summary_tokens: int) -> list[Msg | Control]:
    """The bodies of its first entries. `how`: none, summary or fork; `call`: the id of the call that starts it.

    A fork is what its parent is shown, entry by entry, so that a provider has it in its cache as far as nothing was
    folded. A fold is told as text: the numbers that a summary names are those of another log.
    """
    if how == "none":
        return []
    shown = of_state(parent.state)
    entries = shown.entries(parent.entries)
    if how == "fork":
        made = list(_before(shown.summary, parent, summary_tokens))
        numbers = {entry.n: len(made) + at for at, entry in enumerate(entries, 1)}
        return [*made, *(entry.body for entry in entries), *_closed(entries, call), *_marks(shown, numbers)]
    # By code: a summary that a model writes would have the subagent wait for it.
    told = extract(source(entry, None, parent.known) for entry in entries if entry.is_message)
    return [*_before(shown.summary.merge(told), parent, summary_tokens), *_said_last(entries, parent)]


def _before(summary: Summary, parent: Context, most: int) -> Iterator[NoteMsg]:
    if summary:
        text = render_summary(summary, max_tokens=most).text
        yield NoteMsg(f"What came before in the conversation that you work for:\n{text}", parent.id)


def _said_last(entries: list[Entry], parent: Context) -> Iterator[NoteMsg]:
    texts = [entry.body.text for entry in entries if isinstance(entry.body, AssistantMsg) and entry.body.text]
    if texts:
        yield NoteMsg(f"What was said last in the conversation that you work for:\n{texts[-1]}", parent.id)


def _closed(entries: list[Entry], call: str) -> Iterator[ToolMsg]:
    """Results for the calls that have none yet: the one that starts the subagent, and those behind it."""
    for found in open_calls(entries):
        if found.call.id == call:
            yield ToolMsg(found.call.id, found.call.name, STARTED)
        else:
            yield stand_in(found, False, "a subagent begins here")


def _marks(shown: View, numbers: dict[int, int]) -> Iterator[Masking]:
    """What is shown shortened is so in the fork too, under the numbers that it has there."""
    by_how: dict[How, dict[int, int]] = {}
    for n, mark in shown.visible.marks.items():
        value = numbers.get(mark.value) if mark.how == "superseded" else mark.value
        if n in numbers and value is not None:
            by_how.setdefault(mark.how, {})[numbers[n]] = value
    for at, (how, entries) in enumerate(sorted(by_how.items()), 2):
        yield Masking(version=at, how=how, entries=entries)
