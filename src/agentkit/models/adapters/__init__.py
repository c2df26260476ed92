"""Models behind the port LLM: one module per provider, and what models in this process have in common."""
