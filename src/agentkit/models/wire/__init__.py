"""Messages in the form that each provider's API takes: what adapters send and exporters write. Pure rendering."""
