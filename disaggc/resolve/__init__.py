"""Stage 2: references bound to catalog facts, defaults filled; what every later stage reads."""
