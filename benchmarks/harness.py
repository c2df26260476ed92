"""What the benchmarks share: timing, a table of ratios, and the page that the table is written to.

Machines are noisy, so nothing here prints a bare time as a result: each row is a ratio of two things measured in turn
in the same run, the best of several rounds each, beside the bound that we hold it to.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

ROUNDS = 7


def best(run: Callable[[], object], *, rounds: int = ROUNDS, number: int = 1) -> float:
    """Seconds of one call of `run`: the fastest of `rounds`, each the mean of `number` calls, without collections."""
    run()
    fastest = float("inf")
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            start = perf_counter()
            for _ in range(number):
                run()
            fastest = min(fastest, (perf_counter() - start) / number)
    finally:
        if was_enabled:
            gc.enable()
    return fastest


def best_after(prepare: Callable[[], object], run: Callable[[], object], *, rounds: int = 30) -> float:
    """Seconds of `run` right after `prepare`, which is not timed: the fastest of `rounds`."""
    fastest = float("inf")
    for _ in range(rounds):
        prepare()
        start = perf_counter()
        run()
        fastest = min(fastest, perf_counter() - start)
    return fastest


@dataclass
class Table:
    """Ratios of one benchmark. A row whose ratio is over its bound makes the script exit with 1."""

    title: str
    rows: list[tuple[str, str, float, float | None, bool]] = field(default_factory=list)

    def add(self, what: str, against: str, ratio: float, *, at_most: float) -> None:
        """`what` costs `ratio` times `against`, and may cost `at_most` times it."""
        self.rows.append((what, against, ratio, at_most, ratio <= at_most))
        self._print_last(f"at most {at_most:g}")

    def faster(self, what: str, against: str, ratio: float, *, at_least: float) -> None:
        """`what` is `ratio` times as fast as `against`, and should be at least `at_least` times."""
        self.rows.append((what, against, ratio, at_least, ratio >= at_least))
        self._print_last(f"at least {at_least:g}")

    def show(self, what: str, against: str, ratio: float) -> None:
        """`what` costs `ratio` times `against`, for comparison: nothing is promised."""
        self.rows.append((what, against, ratio, None, True))
        self._print_last("no bound")

    def _print_last(self, bound: str) -> None:
        what, against, ratio, _, good = self.rows[-1]
        print(f"{'ok  ' if good else 'OVER'} {ratio:8.2f} x  ({bound})  {what}  /  {against}", flush=True)

    @property
    def failed(self) -> int:
        return sum(not row[4] for row in self.rows)

    def markdown(self) -> str:
        """The rows as a table for docs/performance.md."""
        lines = ["| what | against | ratio | bound |", "|---|---|---|---|"]
        for what, against, ratio, bound, good in self.rows:
            told = "-" if bound is None else f"{bound:g}"
            lines.append(f"| {what} | {against} | {ratio:.2f}{'' if good else ' **over**'} | {told} |")
        return "\n".join(lines)


def finish(name: str, tables: list[Table]) -> None:
    """Write the tables between the marks of `name` in docs/performance.md when asked to (`--write`), and exit."""
    if "--write" in sys.argv:
        page = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
        text = page.read_text(encoding="utf-8")
        start, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        if start not in text or end not in text:
            sys.exit(f"{page} has no marks for {name}: add {start.strip()} and {end}")
        body = "\n\n".join(f"### {table.title}\n\n{table.markdown()}" for table in tables)
        head, rest = text.split(start)[0], text.split(end)[1]
        page.write_text(head + start + body + "\n" + end + rest, encoding="utf-8")
    failed = sum(table.failed for table in tables)
    print(f"{sum(len(table.rows) for table in tables) - failed} within their bounds, {failed} over")
    sys.exit(1 if failed else 0)
