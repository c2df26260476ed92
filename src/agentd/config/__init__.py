"""One document, laid over by environment and flags, as one frozen value, or all that is wrong with it at once.

Needs the extra `agentd` (pydantic, pyyaml). Reads the files it is given; never the network or a store.
"""

from agentkit.core.contracts.errors import MissingExtraError

try:
    import pydantic  # noqa: F401
    import yaml  # type: ignore[import-untyped]  # noqa: F401
except ImportError as error:
    raise MissingExtraError("agentd", error.name or "pydantic", "agentd") from None

from agentd.config.faults import ConfigError, Fault, Origin, key_text
from agentd.config.load import load
from agentd.config.reload import Changes, Refused, reload
from agentd.config.rules import Finding, Rule
from agentd.config.secrets import SecretRef
from agentd.config.settings import Settings, digest, digests, document, json_schema
from agentd.config.values import Address, Rate, TokenLimit, duration_text, parse_duration

__all__ = [
    "Address",
    "Changes",
    "ConfigError",
    "Fault",
    "Finding",
    "Origin",
    "Rate",
    "Refused",
    "Rule",
    "SecretRef",
    "Settings",
    "TokenLimit",
    "digest",
    "digests",
    "document",
    "duration_text",
    "json_schema",
    "key_text",
    "load",
    "parse_duration",
    "reload",
]
