"""What every test gets: one event loop, example counts for property tests, and no way to a foreign host."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from agentkit.models.testing.loopback import VARIABLE, loopback_only

# A busy machine is no finding, and CI draws the same examples in every run: it must not fail by chance.
_common: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("default", max_examples=60, derandomize="CI" in os.environ, **_common)
settings.register_profile("soak", max_examples=3000, print_blob=True, **_common)
settings.load_profile("soak" if os.environ.get("AGENTKIT_SOAK") else "default")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def no_foreign_hosts() -> Iterator[None]:
    """Connects and name look-ups of this process end at loopback, and no client is made that leads elsewhere; Unix
    sockets are free. Processes that tests start read the same variable."""
    with pytest.MonkeyPatch.context() as patch, loopback_only():
        patch.setenv(VARIABLE, "1")
        yield
