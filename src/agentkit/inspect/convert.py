"""A transcript as JSON text of another form. Touches only its arguments."""
