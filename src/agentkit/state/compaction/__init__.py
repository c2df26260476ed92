"""Where to cut a transcript and how to shorten it (not the price table: that is `models.catalog.compact`)."""
