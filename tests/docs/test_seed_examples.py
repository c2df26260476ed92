"""Every example of the design document prints what the document says."""

from pathlib import Path

import pytest

from tests.seed_examples import EXAMPLES, check_example


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_example_prints_expected(script: Path) -> None:
    check_example(script)


def test_examples_are_complete() -> None:
    assert [int(script.name[:2]) for script in EXAMPLES] == list(range(1, 15))
