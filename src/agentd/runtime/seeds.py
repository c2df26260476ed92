"""What the conversation of a subagent begins with: nothing, a summary of its parent's, or a fork of what is shown of
that. Touches only its arguments.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentd.context.record import AssistantMsg, Control, Entry, How, Masking, Msg, NoteMsg, ToolMsg
from agentd.context.resident import Context
from agentd.context.view import View, of_state
from agentkit.state.compaction import render_summary

from .effects import open_calls, stand_in

STARTED = "You are the subagent that this call has started."


def seeds(how: str, parent: Context, call: str, summary_tokens: int) -> list[Msg | Control]:
    """The bodies of its first entries. `how`: none, summary or fork; `call`: the id of the call that starts it.

    A fork is what its parent is shown, entry by entry, so that a provider has it in its cache as far as nothing was
    folded. A fold is told as text: the numbers that a summary names are those of another log.
    """
    if how == "none":
        return []
    shown, made = of_state(parent.state), list[Msg | Control]()
    if shown.summary:
        text = render_summary(shown.summary, max_tokens=summary_tokens).text
        made.append(NoteMsg(f"What came before in the conversation that you work for:\n{text}", parent.id))
    if how == "fork":
        entries = shown.entries(parent.entries)
        numbers = {entry.n: len(made) + at for at, entry in enumerate(entries, 1)}
        made += [entry.body for entry in entries]
        made += _closed(entries, call)
        made += _marks(shown, numbers)
    elif not shown.summary:
        said = [entry.body for entry in shown.entries(parent.entries)]
        texts = [body.text for body in said if isinstance(body, AssistantMsg) and body.text]
        if texts:
            made.append(NoteMsg(f"What was said last in the conversation that you work for:\n{texts[-1]}", parent.id))
    return made


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
