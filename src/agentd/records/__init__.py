"""Records over the Store port: envelopes under injective keys, commits, logs, leases. Knows of no context.

Needs the extra `agentd` (msgspec). Touches the store that is handed in; only `opening` opens one.
"""

from .envelope import Row as Row
from .ids import Ids, uuid7
from .records import Records
from .writes import ANY, Abilities, Add, Found, Remove, Retry, Save, Trouble, Unsupported, Write

__all__ = [
    "ANY",
    "Abilities",
    "Add",
    "Found",
    "Ids",
    "Records",
    "Remove",
    "Retry",
    "Row",
    "Save",
    "Trouble",
    "Unsupported",
    "Write",
    "uuid7",
]
