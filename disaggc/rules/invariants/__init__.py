"""Rules about plans: what the compiler must have written, checked on every plan before it is used."""
