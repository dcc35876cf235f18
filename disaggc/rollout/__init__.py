"""Changing the world and looking at it: what runs, what differs, what to do, and whether it works. Knows no spec."""
