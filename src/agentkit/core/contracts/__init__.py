"""The values, ports and errors that every room speaks in. Imports the standard library only."""

# Loaded with the package, so that every value has its stored form wherever it was imported from.
from . import codec as codec
