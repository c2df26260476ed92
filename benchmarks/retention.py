"""How much of what was said early is still in the prompt after 1, 5 and 20 compactions, without any model: facts are
planted into a recorded conversation, which goes on through a small window until it was folded that often.

Beside agentd's reduction, which merges what a fold adds into the summary so far, the same folds are played with a
summary of the summary, and with plain truncation to the same size. `python benchmarks/retention.py` prints the shares,
`--write` also puts them into docs/performance.md. Reads the recordings of this repository.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from harness import finish

from agentd.context.compact import Applied, Plan, apply, look, plan
from agentd.context.messages import assistant_msg, entry_message
from agentd.context.record import ContextState, Entry, Msg, TextPart, ToolMsg, UserMsg, entry_of
from agentd.context.scene import shown_messages
from agentd.context.settings import Reduction
from agentd.context.tokens import Conditions, Fixed
from agentd.context.units import settled_calls
from agentd.context.view import advance, of_state, with_view
from agentkit.core.contracts.messages import Message
from agentkit.state.compaction import Source, Summary, extract, render_summary
from agentkit.state.context import CharClassTokenCounter
from agentkit.transcripts import load

ROOT = Path(__file__).resolve().parent.parent
WINDOW = 32_000
POINTS = (1, 5, 20)
"""Compactions after which the prompt is looked at."""
EACH = 6
"""Facts of a kind."""
COUNTER = CharClassTokenCounter()

# Each kind of fact: who says it, the sentence, and the part of it that has to be in the prompt, word for word.
KINDS: dict[str, tuple[str, str, str]] = {
    "rules": ("user", "Never touch the shard orchid-{n}.", "Never touch the shard orchid-{n}."),
    "identifiers": ("user", "The ticket for this is TCK-{n}7-Q.", "TCK-{n}7-Q"),
    "paths": ("tool", "written to /srv/export/{n}/report-{n}.parquet", "/srv/export/{n}/report-{n}.parquet"),
    "numbers": ("assistant", "I counted 7{n}13 rows in the ledger.", "7{n}13 rows"),
    "decisions": ("assistant", "We decided to use codec zeta-{n} because the other loses frames.", "codec zeta-{n}"),
    "errors": ("tool", "Error E{n}17: the lease of worker-{n} was refused", "E{n}17"),
}


@dataclass
class Talk:
    """A context that is written to and reduced as the daemon does it, and what the other ways would have kept."""

    settings: Reduction = field(default_factory=Reduction)
    conditions: Conditions = field(default_factory=lambda: Conditions(WINDOW, Fixed(output=2_000)))
    state: ContextState = field(default_factory=lambda: ContextState(id="talk", handled=0))
    log: list[Entry] = field(default_factory=list)
    retold: Summary = field(default_factory=Summary)
    folds: int = 0

    def write(self, body: Msg) -> int:
        entry = entry_of(self.state.next, body)
        self.log.append(entry)
        self.state = with_view(self.state, advance(of_state(self.state), entry))
        return entry.n

    def reduce(self) -> bool:
        """Reduce the context if that is due; whether something was folded."""
        made = plan(look(self.state, self.log, self.settings, self.conditions), self.settings, self.conditions)
        if not isinstance(made, Plan):
            return False
        sources = made.sources(self.log)
        delta = extract(sources) if made.folds else None
        done = apply(self.state, self.log, made, delta, self.settings, self.conditions, now=0)
        if not isinstance(done, Applied):
            raise SystemExit(f"a reduction was declined: {done}")
        if made.folds:
            old = [Source(0, "user", self._rendered(self.retold))] if self.folds else []
            self.retold = extract([*old, *sources])
            self.folds += 1
        self.log += done.entries
        self.state = done.state
        return made.folds

    def _rendered(self, summary: Summary) -> str:
        return render_summary(
            summary, max_tokens=self.settings.summary_room(WINDOW), rule_tokens=WINDOW // 10, recall="context.recall"
        ).text

    # The prompt of each way, of one size

    def shown(self) -> list[Message]:
        found = shown_messages(of_state(self.state), self.log, "talk", self.settings, self.conditions)
        return [one.message for one in found]

    def ways(self) -> dict[str, str]:
        """What the prompt says under each way."""
        merged = self.shown()
        size, kept = COUNTER.measure(merged), list[str]()
        for entry in reversed(self.log):
            if entry.is_message:
                message = entry_message(entry)
                size -= COUNTER.measure([message])
                if size < 0:
                    break
                kept.append(message.content)
        tail = "\n".join(message.content for message in merged[1:])
        return {
            "summary, merged (agentd)": "\n".join(message.content for message in merged),
            "summary of the summary": f"{self._rendered(self.retold)}\n{tail}",
            "truncation to the same size": "\n".join(kept),
        }


def recorded() -> Iterator[Message]:
    """Real conversations, one behind the other, again and again."""
    files = [
        ROOT / "examples/transcripts/worktree-long.jsonl",
        *sorted((ROOT / "tests/data/transcripts/tau-bench").glob("*.json")),
    ]
    histories = [transcript.history for file in files for transcript in load(file)]
    for history in itertools.cycle(histories):
        yield from (message for message in history if message.role in ("user", "assistant", "tool"))


class Planted:
    """The facts, handed out to the messages of who says them."""

    def __init__(self) -> None:
        numbers = range(11, 11 + EACH)
        self.wanted = {kind: [part.format(n=n) for n in numbers] for kind, (_, _, part) in KINDS.items()}
        self._left = {
            role: [text.format(n=n) for n in numbers for who, text, _ in KINDS.values() if who == role]
            for role in ("user", "assistant", "tool")
        }

    def into(self, text: str, role: str) -> str:
        """The text with a fact behind it, as long as there is one."""
        left = self._left[role]
        return f"{text}\n{left.pop(0)}" if left else text

    @property
    def is_done(self) -> bool:
        return not any(self._left.values())

    def share(self, prompt: str) -> dict[str, float]:
        """By kind, which part of the facts a prompt says."""
        return {kind: sum(part in prompt for part in parts) / len(parts) for kind, parts in self.wanted.items()}


def played() -> dict[int, dict[str, dict[str, float]]]:
    """By number of compactions and way, the share of each kind of fact."""
    talk, planted, ids = Talk(), Planted(), itertools.count(1)
    found: dict[int, dict[str, dict[str, float]]] = {}
    asked = 0
    # The facts come first, in short exchanges; then the recordings go on.
    while not planted.is_done:
        talk.write(UserMsg((TextPart(planted.into("Please go on with the next shard.", "user")),)))
        call = Message("assistant", planted.into("", "assistant"), tool_calls=[{"id": "c", "name": "read"}])
        made = settled_calls(assistant_msg(call), lambda: f"p{next(ids)}")
        talk.write(made)
        talk.write(ToolMsg(made.tool_calls[0].id, "read", planted.into("ok", "tool")))
    names: dict[str | None, str] = {}
    for message in recorded():
        if message.role == "user":
            talk.state = msgspec.structs.replace(talk.state, handled=asked or None)
        if message.role != "tool" and talk.reduce() and talk.folds in POINTS:
            found[talk.folds] = {way: planted.share(prompt) for way, prompt in talk.ways().items()}
            if len(found) == len(POINTS):
                return found
        if message.role == "user":
            asked = talk.write(UserMsg((TextPart(message.content),)))
        elif message.role == "assistant":
            made = settled_calls(assistant_msg(message), lambda: f"r{next(ids)}")
            names = {call.original: call.id for call in made.tool_calls}
            talk.write(made)
        elif message.tool_call_id in names:
            talk.write(ToolMsg(names[message.tool_call_id], message.name or "", message.content, message.is_error))
    raise AssertionError("the recordings never end")


@dataclass
class Shares:
    """Shares of facts, a column for each number of compactions. Over its bound where another way keeps more."""

    title: str
    rows: list[tuple[str, list[float]]] = field(default_factory=list)
    failed: int = 0

    def add(self, what: str, shares: list[float]) -> None:
        self.rows.append((what, shares))
        print(f"{'  '.join(f'{share:6.0%}' for share in shares)}  {what}", flush=True)

    def markdown(self) -> str:
        heads = " | ".join(f"after {point}" for point in POINTS)
        lines = [f"| what | {heads} |", f"|---|{'---|' * len(POINTS)}"]
        lines += [f"| {what} | {' | '.join(f'{share:.0%}' for share in shares)} |" for what, shares in self.rows]
        return "\n".join(lines)


def main() -> None:
    found = played()
    ways = Shares(f"Share of {EACH * len(KINDS)} early facts in the prompt, by number of compactions")
    for way in found[POINTS[0]]:
        ways.add(way, [sum(found[point][way].values()) / len(KINDS) for point in POINTS])
    ours, *others = [shares for _, shares in ways.rows]
    ways.failed = sum(any(other > own for own, other in zip(ours, shares, strict=True)) for shares in others)
    kinds = Shares("The same for agentd's way, by kind of fact")
    for kind in KINDS:
        kinds.add(kind, [found[point]["summary, merged (agentd)"][kind] for point in POINTS])
    kinds.failed = sum(shares != [1.0] * len(POINTS) for kind, shares in kinds.rows if kind == "rules")
    finish("retention", [ways, kinds])  # type: ignore[list-item]


if __name__ == "__main__":
    main()
