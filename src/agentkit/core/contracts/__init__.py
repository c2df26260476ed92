"""The values, ports and errors that every room speaks in. Imports the standard library only."""
