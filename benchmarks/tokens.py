"""How far token counts are off: by kind of text, over simulated agents, and against what providers reported in the
recorded sessions.

`python benchmarks/tokens.py` prints the errors, `--write` also puts them into docs/performance.md. Texts are those of
this repository and of the Python installation, or made here; the reference is o200k_base by the offline tokenizer.
Nothing is fetched.
"""

from __future__ import annotations

import base64
import json
import sysconfig
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import mean, median

from harness import finish

from agentkit.core.contracts.types import Message, Usage
from agentkit.inspect.record import is_sent, prefix_length
from agentkit.state.context import (
    ApproxTokenCounter,
    Calibration,
    CharClassTokenCounter,
    ExactTokenCounter,
    PrefixContext,
    WorkingContext,
)
from agentkit.state.context.anchor import HIGHEST_FACTOR, UPPER_STEP
from agentkit.state.context.tokens import AdditiveCounter
from agentkit.transcripts import Transcript, load

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "tests" / "data" / "transcripts"
TEXTS = ROOT / "tests" / "data" / "texts"
ASSETS = ROOT / "src" / "agentkit" / "inspect" / "assets"
LIBRARY = Path(sysconfig.get_paths()["stdlib"])
PIECES = 300
"""Random pieces of each kind of text, of 200 to 2,000 characters."""
SEEDS, REQUESTS, HIDDEN = 12, 60, 450
"""Simulated agents, requests of each, and tokens of each request that the client cannot see."""
MEDIAN, P95 = 3.0, 10.0
"""The bounds of the anchored count against recorded usage, in percent."""
KIND = 25.0
"""The bound of the mean error of the char-class counter on a kind of text, in percent. Texts of one kind differ: German
with many compounds is at - 19, other German at - 10, minified JavaScript at + 23."""


# -- texts -------------------------------------------------------------------------------------------------------------


def texts() -> dict[str, str]:
    """A text of each kind, some 100,000 characters where there are as many."""
    random = Random(11)
    values = list(_values())
    return {
        "English": _prose(),
        "Python": _files(sorted(LIBRARY.glob("*.py"))[:80:4]),
        "JavaScript": _files([ASSETS / "prelude.js", ASSETS / "report.js"]),
        "JavaScript, minified": _files([ASSETS / "uPlot.iife.min.js"]),
        "JSON, indented": "\n".join(json.dumps(v, indent=2, ensure_ascii=False) for v in values),
        "JSON, compact": "\n".join(json.dumps(v, separators=(",", ":"), ensure_ascii=False) for v in values),
        "`ls -la` output": _listing(random),
        "UUIDs, times": "\n".join(_stamped(random) for _ in range(1_500)),
        "hex digests": "\n".join(random.randbytes(32).hex() for _ in range(1_500)),
        "base64": base64.b64encode(random.randbytes(75_000)).decode(),
        **{
            language.capitalize(): (TEXTS / f"{language}.txt").read_text(encoding="utf-8")
            for language in ("german", "chinese", "japanese", "korean", "russian", "arabic")
        },
    }


def _files(paths: Iterable[Path]) -> str:
    return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in paths)[:400_000]


def _prose() -> str:
    """The language reference, as the interpreter carries it for its help."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))[:200_000]


def _values() -> Iterable[object]:
    """JSON of every day: recorded records and requests, price rows."""
    for path in sorted(SAMPLES.glob("*/*")):
        if path.suffix == ".jsonl":
            lines = path.read_text(encoding="utf-8").splitlines()[:60]
            yield from (json.loads(line) for line in lines)
        elif path.suffix in (".json", ".traj"):
            yield json.loads(path.read_text(encoding="utf-8"))


def _listing(random: Random) -> str:
    months = ("Jan", "Mar", "Jun", "Aug", "Nov")
    names = sorted(path.name for path in LIBRARY.iterdir())
    return "\n".join(
        f"{random.choice(('-rw-r--r--', 'drwxr-xr-x', '-rwxr-xr-x'))}  {random.randint(1, 9)} root root "
        f"{random.randint(40, 900_000):>7} {random.choice(months)} {random.randint(1, 28):>2} "
        f"{random.randint(0, 23):02}:{random.randint(0, 59):02} {name}"
        for name in names
    )


def _stamped(random: Random) -> str:
    return (
        f"{uuid.UUID(int=random.getrandbits(128))} 2026-{random.randint(1, 12):02}-{random.randint(1, 28):02}T"
        f"{random.randint(0, 23):02}:{random.randint(0, 59):02}:{random.randint(0, 59):02}.{random.randint(0, 999):03}Z"
    )


def piece_of(text: str, random: Random, shortest: int = 200, longest: int = 2_000) -> str:
    length = min(random.randint(shortest, longest), len(text))
    start = random.randint(0, len(text) - length)
    return text[start : start + length]


# -- tables ------------------------------------------------------------------------------------------------------------


@dataclass
class Errors:
    """A table of errors in percent. `failed`: rows over their bound."""

    title: str
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    failed: int = 0

    def add(self, *cells: str, good: bool = True) -> None:
        self.rows.append(cells)
        self.failed += not good
        print(f"{'ok  ' if good else 'OVER'} {'  '.join(f'{cell:>22}' for cell in cells[1:])}  {cells[0]}", flush=True)

    def markdown(self) -> str:
        lines = [f"| {' | '.join(self.heads)} |", "|---" * len(self.heads) + "|"]
        return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in self.rows)])


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def spread(errors: Sequence[float]) -> str:
    low, high = percentile(errors, 0.05), percentile(errors, 0.95)
    return f"{mean(errors):+.0f} ({low:+.0f}..{high:+.0f})"


def by_kind() -> Errors:
    """Each counter against o200k_base on pieces of one kind."""
    table = Errors(
        f"Error against o200k_base, {PIECES} pieces of each kind, percent: mean (p5..p95)",
        ("kind", "chars per token", "characters / 4", "char-class (default)", "bound of the mean"),
    )
    exact, plain, ours = ExactTokenCounter("o200k_base"), ApproxTokenCounter(), CharClassTokenCounter()
    for kind, text in texts().items():
        random = Random(kind)
        pieces = [Message("user", piece_of(text, random)) for _ in range(PIECES)]
        real = [exact.measure([piece]) - 4 for piece in pieces]
        density = sum(len(piece.content) for piece in pieces) / sum(real)

        def error(counter: AdditiveCounter, pieces: list[Message] = pieces, real: list[int] = real) -> list[float]:
            counted = [counter.measure([piece]) - 4 for piece in pieces]
            return [100 * (got / tokens - 1) for got, tokens in zip(counted, real, strict=True)]

        good = abs(mean(error(ours))) <= KIND
        table.add(kind, f"{density:.2f}", spread(error(plain)), spread(error(ours)), f"{KIND:.0f}", good=good)
    return table


# -- simulated agents --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Truth:
    """What a model counts: a vocabulary, taken so many times."""

    name: str
    counter: AdditiveCounter
    times: float = 1.0

    def __call__(self, messages: Sequence[Message]) -> int:
        return HIDDEN + round(self.times * self.counter.measure(messages))


def session(seed: int, sources: dict[str, str]) -> list[tuple[Message, Message]]:
    """What one agent is shown and answers, request by request: prose, code, JSON, shell output, Chinese."""
    random = Random(seed)
    kinds = ("English", "Python", "JSON, compact", "`ls -la` output", "Chinese", "UUIDs, times")
    weights = (4, 4, 3, 2, 1, 1)
    turns = []
    for _ in range(REQUESTS):
        kind = random.choices(kinds, weights)[0]
        shown = Message("user", piece_of(sources[kind], random, 100, 4_000))
        turns.append((shown, Message("assistant", piece_of(sources["English"], random, 50, 800))))
    return turns


def of_everything(counter: AdditiveCounter, truth: Truth, turns: list[tuple[Message, Message]]) -> list[float]:
    """Errors of counting each request anew, in percent."""
    sent: list[Message] = []
    errors = []
    for shown, answer in turns:
        sent.append(shown)
        errors.append(100 * (counter.measure(sent) / truth(sent) - 1))
        sent.append(answer)
    return errors[1:]


def with_reports(
    counter: AdditiveCounter, truth: Truth, turns: list[tuple[Message, Message]], first: float
) -> list[float]:
    """Errors of the anchored count of each request behind the first, in percent."""
    context = WorkingContext(PrefixContext(), token_counter=counter)
    calibration, errors = Calibration(first), []
    for shown, answer in turns:
        context.append(shown)
        real = truth(context.messages)
        errors.append(100 * (context.count(calibration).tokens / real - 1))
        seen = context.record_usage(Usage(real), layout=context.segments(), model="simulated")
        calibration = calibration.learn(seen)
        context.append(answer)
    return errors[1:]


def simulated() -> Errors:
    sources = texts()
    sessions = [session(seed, sources) for seed in range(SEEDS)]
    exact, plain, ours = ExactTokenCounter("o200k_base"), ApproxTokenCounter(), CharClassTokenCounter()
    qwen = ExactTokenCounter("qwen3.5")
    truths = [
        Truth("o200k_base", exact),
        Truth("qwen3.5", qwen),
        Truth("cl100k_base", ExactTokenCounter("cl100k_base")),
        Truth("qwen3.5 x 1.35", qwen, 1.35),
    ]
    ways: dict[str, Callable[[Truth, list[tuple[Message, Message]]], list[float]]] = {
        "characters / 4 of everything": lambda truth, turns: of_everything(plain, truth, turns),
        "exact o200k of everything": lambda truth, turns: of_everything(exact, truth, turns),
        "anchor + exact o200k x factor": lambda truth, turns: with_reports(exact, truth, turns, 1.0),
        "anchor + char-class x factor (default)": lambda truth, turns: with_reports(ours, truth, turns, 1.0),
        "the same, seed 1.5": lambda truth, turns: with_reports(ours, truth, turns, 1.5),
    }
    table = Errors(
        f"Next request of {SEEDS} simulated agents with {REQUESTS} requests, |error| in percent: median / p95 / worst "
        "underestimate",
        ("estimator", *(truth.name for truth in truths)),
    )
    for name, way in ways.items():
        cells, good = [], True
        for truth in truths:
            errors = [error for turns in sessions for error in way(truth, turns)]
            sizes = [abs(error) for error in errors]
            cells.append(f"{median(sizes):.2g} / {percentile(sizes, 0.95):.2g} / {min(errors):.0f}")
            good = good and (
                not name.startswith("anchor") or (median(sizes) <= MEDIAN and percentile(sizes, 0.95) <= P95)
            )
        table.add(name, *cells, good=good)
    return table


# -- recorded sessions -------------------------------------------------------------------------------------------------


def recorded(
    transcript: Transcript, counter: AdditiveCounter
) -> tuple[list[float], list[float], list[bool], list[bool]]:
    """For every response with usage that has one before it: the errors, in percent, of counting everything and of the
    anchored count, and whether the request stayed within the upper bound: twice, for all requests and for those whose
    growth the record explains, since no tokenizer takes more than four times the estimate."""
    responses = [r for r in transcript.responses if r.index is not None and r.reading is not None and r.reading.anchor]
    context = WorkingContext(transcript.context.prefix, token_counter=counter)
    fed, sent = prefix_length(transcript), is_sent(transcript)
    calibration: Calibration | None = None
    whole: list[float] = []
    anchored: list[float] = []
    held: list[bool] = []
    explained: list[bool] = []
    for response in responses:
        assert response.index is not None
        assert response.reading is not None
        assert response.reading.anchor is not None
        calibration = calibration or Calibration.seed(response.model, counter.key)
        new = enumerate(transcript.history[fed : response.index], fed)
        context.extend(message for place, message in new if sent(place))
        fed = max(fed, response.index)
        real = response.reading.anchor.prompt_tokens
        count = context.count(calibration, tools=transcript.tools)
        if count.source == "provider":
            anchored.append(100 * (count.tokens / real - 1))
            whole.append(100 * (counter.measure(context.assembled()) / real - 1))
            held.append(count.upper >= real)
            if real - count.reported <= HIGHEST_FACTOR * count.appended + UPPER_STEP:
                explained.append(held[-1])
        layout = context.segments(tools=transcript.tools)
        calibration = calibration.learn(
            context.record_usage(response.reading.anchor, layout=layout, model=response.model)
        )
    return whole, anchored, held, explained


def against_providers() -> Errors:
    table = Errors(
        "Next request against the provider's figure, recorded sessions with usage, |error| in percent: median / p95 / "
        "worst underestimate",
        (
            "session",
            "requests",
            "characters / 4 of everything",
            "anchor + char-class x factor (default)",
            "within upper",
            "of those that the record explains",
        ),
    )
    everything: tuple[list[float], list[float], list[bool], list[bool]] = ([], [], [], [])
    for path in sorted(SAMPLES.glob("*/*")):
        if path.suffix not in (".json", ".jsonl", ".traj"):
            continue
        for transcript in load(path):
            plain, *_ = recorded(transcript, ApproxTokenCounter())
            _, ours, held, explained = recorded(transcript, CharClassTokenCounter())
            if ours:
                name = f"{path.parent.name}/{path.name}"
                table.add(name, str(len(ours)), _told(plain), _told(ours), f"{mean(held):.0%}", _share(explained))
                everything[0].extend(plain)
                everything[1].extend(ours)
                everything[2].extend(held)
                everything[3].extend(explained)
    sizes = [abs(error) for error in everything[1]]
    good = median(sizes) <= MEDIAN and percentile(sizes, 0.95) <= P95
    name = f"**all** (bounds {MEDIAN:g} and {P95:g})"
    cells = (_told(everything[0]), _told(everything[1]), f"{mean(everything[2]):.0%}", _share(everything[3]))
    table.add(name, str(len(sizes)), *cells, good=good)
    return table


def _share(held: Sequence[bool]) -> str:
    return f"{sum(held)} of {len(held)}"


def _told(errors: Sequence[float]) -> str:
    sizes = [abs(error) for error in errors]
    return f"{median(sizes):.2f} / {percentile(sizes, 0.95):.2f} / {min(*errors, 0.0):.1f}"


if __name__ == "__main__":
    parts = [part() for part in (by_kind, simulated, against_providers)]
    finish("tokens", parts)  # type: ignore[arg-type]
