"""compose: one project per host, on the host's network. Knows docker's ways; starts nothing."""
