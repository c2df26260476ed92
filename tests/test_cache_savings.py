"""What `examples/cache_savings.py` shows: the same conversation under three layouts, billed by the provider's rules."""

import pytest

from examples import cache_savings


def test_the_librarys_layout_is_the_cheapest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cache_savings.main() == 0
    shown = capsys.readouterr().out
    naive, marked, ours = [line.split() for line in shown.splitlines() if line.startswith("  all ")]
    assert naive[1] == marked[1] == ours[1] == "18"
    assert naive[2] == marked[2] == "0"
    assert int(ours[2].replace(",", "")) > 40_000
    assert float(ours[-1]) < float(naive[-1]) / 3 < float(marked[-1]) / 3
    assert max(map(len, shown.splitlines())) <= 100
