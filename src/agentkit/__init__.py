"""The working context of an agent: held, sent, counted, priced, shortened and stored."""

__version__ = "0.1.0"

__all__ = ["__version__"]
