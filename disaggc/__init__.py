"""disaggc compiles a cluster-and-workload spec into a prefill/decode-disaggregated vLLM deployment."""

__version__ = "0.1.0"
