"""The exported table says what the performance model says: dense, sparse, sliding, expert-parallel."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from disaggc.ir.plan import Role, Shape
from disaggc.simengine.timing import read_timing, timing_of
from tests.perf.perf_cases import bench, load, nodes

CASES = (
    ("deepseek-ai/DeepSeek-R1", "mi300x", Shape(tp=8)),
    ("deepseek-ai/DeepSeek-R1", "mi300x", Shape(tp=1, dp=8, ep=8)),
    ("openai/gpt-oss-120b", "h100-sxm", Shape(tp=4)),
    ("meta-llama/Llama-3.1-70B-Instruct", "h100-sxm", Shape(tp=4)),
)


@pytest.mark.parametrize(("model", "accelerator", "shape"), CASES)
def test_steps_cost_the_same_in_the_table_and_in_the_model(model, accelerator, shape):
    group = nodes(accelerator)
    made = bench(model, group, shape, load(isl=1024, osl=1024, concurrency=64))
    pool = SimpleNamespace(group=group.name, shape=shape, role=Role.DECODE)
    models, service = made.models, made.service
    table = timing_of(models, service, pool)
    assert read_timing(table.model_dump_json()) == table
    times = models.engine(service, group, shape).likely
    window = table.decode.window_tokens
    for batch in (1, 2, 16, 64, 256, 1024):  # points of the grid: between them the table is linear
        for context in (0, 100, 5000):
            inside = batch * min(context, window)
            assert table.decode_s(batch, batch * context, inside) == pytest.approx(
                times.decode(batch, context), rel=1e-6
            )
    for batch in (3, 20, 100, 700, 3000):
        assert table.decode_s(batch, batch * 1000, batch * min(1000, window)) == pytest.approx(
            times.decode(batch, 1000), rel=0.05
        )
    step = table.step_s(0, 0, 0, prompt=4096 * table.ranks, squares=4096.0**2 * table.ranks)
    assert step == pytest.approx(max(times.prefill(4096, 4096.0**2, 1), times.weight_read_s), rel=1e-6)
    assert table.transfer_s(1000) > 0
    assert timing_of(models, service, pool, same_node=True).kv != table.kv
