"""Which of several texts a question is about, by the words they share. Touches only its arguments.

The ranking is Okapi BM25 (Robertson and Walker 1994): a shared word counts more the rarer it is among the texts, and
the shorter the text that has it. No model, no index, the same answer every time.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import cache
from math import log

K1, B = 1.2, 0.75
"""How soon repeating a word stops to count, and how much a long text is held back: the customary values."""
DIGITS = 6
"""Decimals of a score that are compared, so that a platform's logarithm moves no text past another."""


@cache
def _words() -> re.Pattern[str]:
    # Han, kana and Hangul are written without spaces, so a run of them is one match and is cut into pairs.
    dense = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af"
    return re.compile(rf"(?P<dense>[{dense}]+)|[^\W_{dense}]+")


def terms(text: str) -> list[str]:
    """The words of a text as they are compared: compatibility forms unified (NFKC), case folded; of a run of Chinese,
    Japanese or Korean each pair of neighbouring characters. Linear in the length of the text."""
    found: list[str] = []
    for match in _words().finditer(unicodedata.normalize("NFKC", text).casefold()):
        word = match[0]
        if match.lastgroup == "dense" and len(word) > 2:
            found += [word[i : i + 2] for i in range(len(word) - 1)]
        else:
            found.append(word)
    return found


def rank(question: str, texts: Sequence[str], k: int) -> list[tuple[int, float]]:
    """(index, score) of the up to `k` texts that share a word with `question`, best first; of equal ones the later."""
    asked = sorted(set(terms(question)))
    if not asked or not texts or k <= 0:
        return []
    counts = [Counter(terms(text)) for text in texts]
    lengths = [sum(count.values()) for count in counts]
    mean = sum(lengths) / len(texts) or 1.0
    scores = [0.0] * len(texts)
    for word in asked:
        holders = [i for i, count in enumerate(counts) if word in count]
        weight = log(1 + (len(texts) - len(holders) + 0.5) / (len(holders) + 0.5))
        for i in holders:
            times = counts[i][word]
            scores[i] += weight * times * (K1 + 1) / (times + K1 * (1 - B + B * lengths[i] / mean))
    rounded = [(round(score, DIGITS), i) for i, score in enumerate(scores) if score > 0]
    return [(i, score) for score, i in sorted(rounded, reverse=True)[:k]]
