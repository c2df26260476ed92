"""One backend a module, behind the Store port of `core.contracts`."""

from .memory import InMemoryStore
from .sqlite import SQLiteStore

__all__ = ["InMemoryStore", "SQLiteStore"]
