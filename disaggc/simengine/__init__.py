"""The engine double: vLLM's API, P/D protocol, leases, metrics and lifecycle; time from the performance model."""
