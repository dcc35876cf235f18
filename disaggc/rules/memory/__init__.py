"""Rules about memory, shapes and what an engine can hold."""
