"""Models: what they report, cost and cache, and one adapter per provider."""
