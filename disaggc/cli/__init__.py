"""The command line: one file per verb. Says things; decides nothing. Heavy imports stay inside the commands."""
