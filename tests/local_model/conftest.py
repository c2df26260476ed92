"""The one server of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.local_model.model import LocalModel, served


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalModel]:
    """Started once: loading takes a second, and what one test has computed another need not compute again."""
    with served(tmp_path_factory.mktemp("local_model")) as running:
        yield running
