"""Records over the Store port: envelopes under injective keys, commits, logs, leases. Knows of no context.

Needs the extra `agentd` (msgspec). Touches the store that is handed in; `agentd.records.opening` opens one.
"""

from agentkit.core.contracts.errors import Held

from .envelope import Row as Row
from .ids import Ids, uuid7
from .manifest import Start, open_manifest, open_next_generation
from .ownership import Owner, acquire, release, renew, this_process
from .records import Records
from .writes import ANY, Abilities, Add, Found, Remove, Retry, Save, Trouble, Unsupported, Write

__all__ = [
    "ANY",
    "Abilities",
    "Add",
    "Found",
    "Held",
    "Ids",
    "Owner",
    "Records",
    "Remove",
    "Retry",
    "Row",
    "Save",
    "Start",
    "Trouble",
    "Unsupported",
    "Write",
    "acquire",
    "open_manifest",
    "open_next_generation",
    "release",
    "renew",
    "this_process",
    "uuid7",
]
