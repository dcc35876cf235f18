"""Strict readers of what is emitted: they follow each format's own rules and share no code with the quoting."""
