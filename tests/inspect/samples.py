"""Transcripts made by hand for the tests of reports."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from agentkit.core.contracts.types import Message, TextBlock, ThinkingBlock, ToolCall, ToolSchema, Usage, mark
from agentkit.models.usage import read_usage
from agentkit.state.context import PrefixContext, WorkingContext
from agentkit.transcripts import Compaction, Response, Transcript
from agentkit.transcripts.report import Finding, Report

PRICED, UNPRICED = "claude-sonnet-4-6", "model-of-nobody"

HOSTILE = (
    "</script><script>alert(1)</script>"
    "<img src=x onerror=alert(2)>"
    "<!--<script>"
    "\u2028\u2029]]>&lt;script&gt;alert(3)&lt;/script&gt;"
    "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\ud800\x00"
    "javascript:alert(4)' onmouseover='alert(5)' \" autofocus onfocus=\"alert(6)"
)


def response(index: int | None, *, model: str | None = PRICED, minute: int = 0, **figures: int) -> Response:
    """A response of the Anthropic wire with `figures` as its usage; without any, none is recorded."""
    reading = read_usage(figures, "anthropic") if figures else None
    return Response(index, reading, model, f"2026-03-01T10:{minute:02}:00Z")


def transcript(
    history: Sequence[Message],
    responses: Sequence[Response] = (),
    *,
    prefix: PrefixContext | None = None,
    tail: Iterable[Message] | None = None,
    compactions: Sequence[Compaction] = (),
    tools: Sequence[ToolSchema] = (),
    findings: Sequence[Finding] = (),
    label: str = "a session",
    usage: Usage | None = None,
) -> Transcript:
    """`history` without its prefix, which is put in front."""
    prefix = prefix or PrefixContext()
    own = list(history) if tail is None else list(tail)
    return Transcript(
        "by-hand",
        "id-1",
        label,
        WorkingContext(prefix, own),
        (*prefix.rendered, *history),
        tuple(compactions),
        tuple(tools),
        usage if usage is not None else sum((r.usage for r in responses if r.usage is not None), Usage()),
        tuple(responses),
        report=Report(tuple(findings)),
    )


def session(turns: int = 6, *, model: str = PRICED) -> Transcript:
    """A tool loop with usage: a question, then a call and its result in each turn, then an answer."""
    prefix = PrefixContext("You are a careful assistant. " * 40)
    history: list[Message] = [Message("user", "Mend the tests. " * 30)]
    responses: list[Response] = []
    for turn in range(turns):
        before = 900 + 700 * turn
        responses.append(
            response(
                len(history) + 1,
                model=model,
                minute=turn,
                input_tokens=12,
                output_tokens=90,
                cache_read_input_tokens=before if turn else 0,
                cache_creation_input_tokens=700 if turn else 900,
            )
        )
        if turn == turns - 1:
            history.append(Message("assistant", "All tests pass now."))
            break
        call = ToolCall(f"call-{turn}", "Bash" if turn % 2 else "Read", {"command": f"pytest -x {turn}"})
        history.append(Message("assistant", [ThinkingBlock("Let me look.", "sig"), TextBlock("Looking."), call]))
        failed = turn == 1
        text = f"line of output {turn}\n" * 120
        history.append(Message("tool", text, call.name, call.id, is_error=failed))
    tools = (ToolSchema("Bash", "Runs a command.", {"type": "object", "properties": {"command": {"type": "string"}}}),)
    return transcript(history, responses, prefix=prefix, tools=tools)


def broken(model: str = PRICED) -> Transcript:
    """Six turns on 30,000 tokens that the file does not hold; the fourth request came after a pause of ten minutes, and
    the sixth read nothing for no reason."""
    history: list[Message] = []
    responses: list[Response] = []
    for turn in range(6):
        history += [Message("user", f"question {turn} " * 30), Message("assistant", f"answer {turn} " * 20)]
        stored = 30_000 + 200 * turn
        read = 0 if turn in (0, 3, 5) else stored - 200
        responses.append(
            response(
                len(history) - 1,
                model=model,
                minute=turn + (10 if turn > 2 else 0),
                input_tokens=3,
                output_tokens=90,
                cache_read_input_tokens=read,
                cache_creation_input_tokens=stored - read,
            )
        )
    return transcript(history, responses, label="with breaks")


def compacted() -> Transcript:
    """Eight turns, a compaction that keeps one message, three turns more; one answer was abandoned on the way."""
    history: list[Message] = []
    responses: list[Response] = []
    for turn in range(8):
        history += [Message("user", f"question {turn} " * 50), Message("assistant", f"answer {turn} " * 60)]
        responses.append(response(len(history) - 1, minute=turn, input_tokens=300 * turn + 200, output_tokens=150))
    kept = len(history) - 1
    at = len(history)
    history.append(mark(Message("user", "What happened so far: much. " * 10), "summary", covers=15))
    responses.append(response(None, minute=8, input_tokens=2_600, output_tokens=90))
    for turn in range(8, 11):
        history += [Message("user", f"question {turn} " * 50), Message("assistant", f"answer {turn} " * 60)]
        responses.append(
            response(len(history) - 1, minute=turn + 1, input_tokens=300 * turn - 1_700, output_tokens=150)
        )
    tail = [history[at], history[kept], *history[at + 1 :]]
    folded = Compaction(at, "auto", 2_600, 420, (kept,))
    return transcript(history, responses, tail=tail, compactions=[folded], label="with a compaction")


def hostile() -> Transcript:
    """Hostile text in every place that a report shows."""
    call = ToolCall(HOSTILE, HOSTILE, {HOSTILE: HOSTILE})
    history = [
        Message("user", HOSTILE * 3),
        Message("assistant", HOSTILE, tool_calls=(call,)),
        Message("tool", HOSTILE * 2, HOSTILE, HOSTILE),
        Message(HOSTILE, HOSTILE),
    ]
    seen = replace(
        response(1, model=HOSTILE, input_tokens=100, output_tokens=10, cache_read_input_tokens=50), time=HOSTILE
    )
    finding = Finding("loss", HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    folded = Compaction(2, HOSTILE)
    made = transcript(history, [seen], findings=[finding], compactions=[folded], tail=history[2:], label=HOSTILE)
    return replace(made, format=HOSTILE)
