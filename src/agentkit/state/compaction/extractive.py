"""A summary without a model: what can be found in the entries by its form alone. Touches only its arguments.

It fills the same fields as a model's summary and is merged like one. It writes no sentence of its own but the
narrative's figures: every other text is a piece of an entry.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice

from .evidence import PRINCIPALS, Source
from .ranges import Ranges, ranges_of, told
from .shorten import shortened
from .summary import DONE, OPEN, TEXT_LIMIT, Artifact, Constraint, Decision, Failure, Piece, Point, Step, Summary

SCANNED = 20_000
"""Characters read of one entry, from its head and its tail: a log of a megabyte says what matters at its ends."""
PER_ENTRY = 12
"""Items of one field taken from one entry, so that a listing does not push out everything else."""
PER_RESULTS = 48
"""Items of one field taken from all tool results together, evenly and at least one of each: many results in a row are
long, and would else push out what was said between them."""


@cache
def _forms() -> dict[str, re.Pattern[str]]:
    # Possessive, and begun only where no name goes on: a long run without an end is read once.
    endings = "pyi?|tsx?|jsx?|go|rs|c|h|cpp|java|rb|sh|sql|md|txt|json|ya?ml|toml|cfg|ini|csv|html|css|lock|log"
    path = (
        r"(?<![\w@+./~-])(?:(?:~|\.{1,2})?(?:/[\w.@+-]++){2,200}+/?"
        r"|(?:[\w@+.-]++/){1,200}+[\w@+-]++\.\w{1,8}"
        rf"|[\w-]{{1,64}}\.(?:{endings})\b)"
    )
    return {
        "url": re.compile(r"\b[a-z][a-z0-9+.-]{1,15}://[^\s<>\"'`)\]}]{1,400}", re.IGNORECASE),
        "path": re.compile(path),
        "identifier": re.compile(
            r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"
            r"|\b(?=[a-f]*[0-9])[0-9a-f]{7,64}\b"
            r"|\b[A-Z][A-Z0-9]{1,15}-[A-Z0-9]*[0-9][A-Z0-9-]{0,30}\b"
            r"|(?<=`)[^`\n]{2,120}(?=`)"
            r"|\b[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,4}\b"
            r"|\b[a-zA-Z]\w{0,60}_\w{1,60}\b(?:\(\))?|#[0-9]{1,8}\b"
        ),
        "number": re.compile(r"\d"),
        "error": re.compile(
            r"\b(?:error|exception|traceback|panic|fatal|failed|failure|refused|denied|timed? ?out|cannot|"
            r"not found|no such|segmentation fault|assert(?:ion)?error|exit (?:code|status) [1-9]\d*)\b"
            r"|\b\w+(?:Error|Exception)\b|\b[45]\d\d [A-Z]|fehlgeschlagen|échec|ошибка|失败|错误|エラー|오류",
            re.IGNORECASE,
        ),
        "rule": re.compile(
            r"\b(?:always|never|must(?:n't)?|do not|don't|don’t|shall|only ever|from now on|make sure|be sure|"
            r"under no circumstances|at all times|forbidden|required|stick to|prefer|remember that|keep in mind)\b"
            r"|\b(?:immer|nie|niemals|muss|müssen|darf nicht|dürfen nicht|ab jetzt|auf keinen fall|stets)\b"
            r"|\b(?:toujours|jamais|dois|devez|interdit|siempre|nunca|debes?|prohibido|sempre|mai)\b"
            r"|всегда|никогда|нельзя|必须|必須|一定要|不要|禁止|始终|永远|切勿|必ず|しないで|てはいけ|절대|항상|반드시",
            re.IGNORECASE,
        ),
        "decision": re.compile(
            r"\b(?:decided|decision|we(?:'ll| will| should)? (?:use|go with|keep|switch)|let's (?:use|go with)|"
            r"going with|chose|chosen|opted|instead of|rather than|settled on|agreed)\b"
            r"|\b(?:entschieden|entscheidung|stattdessen)\b|décidé|решено|решили|决定|決定|採用|결정",
            re.IGNORECASE,
        ),
        "why": re.compile(r"\b(?:because|since|so that|due to|as it|weil|damit|parce que|porque)\b.*", re.IGNORECASE),
        "box": re.compile(r"^[ \t]*+(?:[-*]|\d{1,3}[.)])[ \t]*+\[([ xX])\][ \t]*+(\S.*)$", re.MULTILINE),
        "todo": re.compile(
            r"^[ \t]*+(?:[-*][ \t]*+)?(?:TODO|FIXME|Next(?: steps?)?|Remaining)[ \t]*+:[ \t]*+(\S.*)$", re.MULTILINE
        ),
    }


def extract(sources: Iterable[Source]) -> Summary:
    """What the entries say, by form: paths, URLs and identifiers; lines with errors; sentences with numbers, decisions
    or a user's rules; ticked and unticked boxes; requests. Linear in the length; the empty summary for no entries."""
    found = sorted(sources, key=lambda source: source.n)
    if not found:
        return Summary()
    covers = ranges_of(source.n for source in found)
    results = sum(source.speaker == "tool" for source in found)
    per_result = min(max(PER_RESULTS // max(results, 1), 1), PER_ENTRY)
    made = [_of_entry(source, per_result if source.speaker == "tool" else PER_ENTRY) for source in found]
    return Summary(
        goals=tuple(item for one in made for item in one.goals),
        facts=tuple(item for one in made for item in one.facts),
        constraints=tuple(item for one in made for item in one.constraints),
        decisions=tuple(item for one in made for item in one.decisions),
        artifacts=tuple(item for one in made for item in one.artifacts),
        errors=tuple(item for one in made for item in one.errors),
        steps=tuple(item for one in made for item in one.steps),
        narrative=(Piece(_story(found, covers), covers, found[-1].n),),
        covers=covers,
    )


def _of_entry(source: Source, most: int) -> Summary:
    n, text = source.n, _ends(source.text)
    principal = source.speaker in PRINCIPALS
    sentences = list(_sentences(text))
    forms = _forms()
    rules = [s for s in sentences if forms["rule"].search(s)] if principal else []
    decisions = [s for s in sentences if forms["decision"].search(s)] if source.speaker != "tool" else []
    errors = [s for s in sentences if forms["error"].search(s)]
    if source.is_error and not errors:
        errors = sentences[-1:]
    taken = {*rules, *decisions, *errors}
    facts = [s for s in sentences if s not in taken and forms["number"].search(s) and _is_prose(s)]
    return Summary(
        goals=tuple(Point(s, n) for s in sentences[:1] if source.speaker == "user"),
        facts=tuple(Point(s, n) for s in facts[:most]),
        # Longer than an item may be, it would not be the user's own words any more; it then stays within recall.
        constraints=tuple(Constraint(s, n, n) for s in rules),
        decisions=tuple(_decision(s, n) for s in decisions[:most]),
        artifacts=tuple(Artifact(*pair, n) for pair in islice(_artifacts(text, sentences), 2 * most)),
        errors=tuple(Failure(s, "", n) for s in errors[-most:]),
        steps=tuple(_steps(text, n)) if source.speaker in ("assistant", *PRINCIPALS) else (),
    )


def _ends(text: str) -> str:
    half = SCANNED // 2
    return text if len(text) <= SCANNED else f"{text[:half]}\n{text[-half:]}"


_BREAKS = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；])|\n+")


def _sentences(text: str) -> Iterator[str]:
    for piece in _BREAKS.split(text):
        if piece and (sentence := piece.strip()):
            yield sentence


def _is_prose(sentence: str) -> bool:
    """Whether a sentence with a number says something: not a line of figures, and not a wall of data."""
    if len(sentence) > TEXT_LIMIT:
        return False
    letters = sum(character.isalpha() for character in sentence)
    return letters >= 3 and letters * 3 >= len(sentence)


def _decision(sentence: str, n: int) -> Decision:
    reason = _forms()["why"].search(sentence)
    return Decision(sentence, reason[0] if reason else "", n)


def _artifacts(text: str, sentences: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(id, the sentence it first stands in), each once; URLs first, since a path is found inside them too."""
    seen: set[str] = set()
    forms = _forms()
    for sentence in sentences:
        rest = sentence
        for form in ("url", "path", "identifier"):
            matches = list(forms[form].finditer(rest))
            for match in matches:
                name = match[0].rstrip(".,;:")
                if name and name not in seen and len(name) <= TEXT_LIMIT:
                    seen.add(name)
                    yield name, shortened(sentence, 160)
            if matches:
                rest = forms[form].sub(" ", rest)


def _steps(text: str, n: int) -> Iterator[Step]:
    forms = _forms()
    for match in islice(forms["box"].finditer(text), PER_ENTRY):
        yield Step(match[2].strip(), DONE if match[1] in "xX" else OPEN, n)
    for match in islice(forms["todo"].finditer(text), PER_ENTRY):
        yield Step(match[1].strip(), OPEN, n)


_CALL = re.compile(r"^\[call ([^\s\]]{1,100})", re.MULTILINE)


def _story(found: Sequence[Source], covers: Ranges) -> str:
    """Figures, the first and the last request, and the last answer: what a reader needs to find the place."""
    tools = Counter(name for source in found if source.speaker == "assistant" for name in _CALL.findall(source.text))
    asked = [source for source in found if source.speaker in PRINCIPALS and source.text.strip()]
    answers = [source for source in found if source.speaker == "assistant" and _first_line(source.text)]
    calls = ", ".join(f"{name} {count}" for name, count in sorted(tools.items(), key=lambda p: (-p[1], p[0]))[:12])
    told_calls = f" ({calls})" if calls else ""
    lines = [f"Entries {told(covers)}: {len(asked)} requests, {sum(tools.values())} calls{told_calls}."]
    ends = [("First request", asked[:1]), ("Last request", asked[1:][-1:]), ("Last answer", answers[-1:])]
    for what, sources in ends:
        lines += [f"{what} ({s.n}): {shortened(_first_line(s.text), 240)}" for s in sources]
    return "\n".join(lines)


def _first_line(text: str) -> str:
    return next((line for line in map(str.strip, text.splitlines()) if line and not line.startswith("[call ")), "")
