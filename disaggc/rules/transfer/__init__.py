"""Rules about moving KV from prefill to decode."""
