"""The sound spec on which every rule's examples lie as overlays. It raises nothing itself. Text only."""

EXAMPLE = """\
version: 1
cluster:
  fabric: {type: infiniband, speed_per_nic: 400Gbit}
  nodes:
    h100:
      hosts: {gpu-01: 10.0.0.1, gpu-02: 10.0.0.2, gpu-03: 10.0.0.3}
      accelerator: {type: h100-sxm, per_node: 8}
      price: 30 USD/h
services:
  chat:
    model: {id: meta-llama/Llama-3.1-8B, weights: /models/llama}
    workload:
      talk:
        input_tokens: 1024
        output_tokens: 256
        rate: 4/s
        objectives: {ttft_p90: 2s, itl_p99: 100ms}
    engine:
      vllm: 0.33.0
      image: example.org/vllm@sha256:2222222222222222222222222222222222222222222222222222222222222222
      command: /opt/vllm/bin/vllm
      settings: {max-model-len: 8192}
    proxy: {api_key: {env: CHAT_API_KEY}}
targets:
  systemd: {run_as: vllm}
  compose: {}
  kubernetes: {rdma_resource: rdma/ib}
target: systemd
"""
