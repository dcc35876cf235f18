"""local: every process of a plan on this machine, under supervisord. Writes its configuration; starts nothing."""
