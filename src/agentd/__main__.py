"""`python -m agentd` is the command `agentd`."""

from agentd.cli import main

if __name__ == "__main__":
    main()
