"""`python -m agentkit` is the command `agentkit`."""

from agentkit.cli import main

if __name__ == "__main__":
    main()
