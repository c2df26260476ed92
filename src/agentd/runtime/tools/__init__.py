"""Tools that the model may call: what one is, the box that offers and runs them, and the daemon's own. Touches what an
invocation hands in."""
