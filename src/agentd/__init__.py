"""The daemon on agentkit: durable, self-compacting contexts behind A2A. Arrives with a later release."""

__all__: list[str] = []
