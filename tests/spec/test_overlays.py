"""Several files, `--set` and `from:` make one spec; places follow what won."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.diagnostics import SourceSpan
from disaggc.spec.load import load
from disaggc.spec.tree import Entry, MappingNode, Node, ScalarNode, merge, plain
from tests.spec.loading import NAME, VALID, changed, loaded, said

RATE = ("services", "chat", "workload", "rag", "rate")


def test_a_later_file_wins_key_by_key() -> None:
    second = "services: {chat: {workload: {rag: {rate: 5/s}, code: {input_tokens: 1, output_tokens: 2, rate: 1/s}}}}\n"
    outcome = loaded(VALID, {"b.yaml": second}, overlays=["b.yaml"])
    assert outcome.diagnostics == ()
    assert outcome.value is not None
    workload = outcome.value.spec.services["chat"].workload
    assert (workload["rag"].rate, workload["rag"].input_tokens, workload["code"].rate) == (5.0, 1024, 1.0)
    assert outcome.value.sources.value(RATE).file == "b.yaml"
    assert outcome.value.sources.value(RATE).column == 42
    assert outcome.value.sources.value((*RATE[:-1], "input_tokens")).file == NAME


def test_lists_and_scalars_replace_and_null_unsets() -> None:
    base = changed(
        (
            "      vllm: 0.33.0\n",
            "      vllm: 0.33.0\n    constraints: {prefill: {tp: [1, 2, 4]}, max_nodes: 2}\n",
        )
    )
    over = "services: {chat: {constraints: {prefill: {tp: [8]}, max_nodes: null}}}\n"
    outcome = loaded(base, {"b.yaml": over}, overlays=["b.yaml"])
    assert outcome.value is not None
    constraints = outcome.value.spec.services["chat"].constraints
    assert (constraints.prefill.tp, constraints.max_nodes) == ((8,), None)


def test_every_broken_file_is_reported() -> None:
    others = {"b.yaml": "a: [", "c.yaml": "b: {"}
    outcome = loaded(VALID, others, overlays=["b.yaml", "c.yaml", "d.yaml"])
    assert said(outcome) == ["DGC102 b.yaml:1:5", "DGC102 c.yaml:1:5", "DGC101 d.yaml:1:1"]


def test_an_unknown_field_of_an_overlay_is_reported_there() -> None:
    outcome = loaded(VALID, {"b.yaml": "services:\n  chat:\n    proxi: {}\n"}, overlays=["b.yaml"])
    assert said(outcome) == ["DGC110 b.yaml:3:5"]


@pytest.mark.parametrize(
    ("argument", "path", "value"),
    [
        ("services.chat.workload.rag.rate=5/s", RATE, "5/s"),
        ('services."chat".workload.rag.rate=5/s', RATE, "5/s"),
        (
            "services.chat.workload.rag.input_tokens={mean: 5.0, p99: 9.0}",
            (*RATE[:-1], "input_tokens"),
            {"mean": 5.0, "p99": 9.0},
        ),
        (
            "services.chat.constraints.prefill.tp=[4, 8]",
            ("services", "chat", "constraints", "prefill", "tp"),
            [4, 8],
        ),
        ("services.chat.engine.env.A='1'", ("services", "chat", "engine", "env", "A"), "1"),
        ("services.chat.engine.env.A=a=b", ("services", "chat", "engine", "env", "A"), "a=b"),
        ("cluster.nodes.big.price=", ("cluster", "nodes", "big", "price"), None),
        (
            'cluster.nodes.big.hosts."n3.example.org"=10.0.0.3',
            ("cluster", "nodes", "big", "hosts", "n3.example.org"),
            "10.0.0.3",
        ),
    ],
)
def test_set_gives_one_value_a_place_in_the_argument(
    argument: str, path: tuple[str, ...], value: object
) -> None:
    outcome = loaded(VALID, sets=["optimize=nodes", argument])
    assert outcome.diagnostics == ()
    assert outcome.value is not None
    node: Node = outcome.value.sources.root
    for part in path:
        assert isinstance(node, MappingNode)
        node = node.entries[part].node
    assert plain(node) == value
    if value is not None:
        assert outcome.value.sources.value(path) == SourceSpan(
            "--set", 2, argument.index("=") + 2, 2, len(argument) + 1
        )


@pytest.mark.parametrize(
    ("argument", "place", "words"),
    [
        ("services.chat.workload.rag.rate", (1, 1), "a field and a value"),
        ("=5", (1, 1), "a field and a value"),
        ("a..b=5", (1, 1), "a field and a value"),
        ("a b=5", (1, 1), "a field and a value"),
        ("services.chat.workload.rag.rate=[5", (1, 33), "cannot be read"),
        ("services.chat.workload.rag.rate=\t5: x: y", (1, 33), "cannot be read"),
        ("services.chat.workload.rag.rate.x=5", (1, 28), "a single value"),
        ("services.chat.speed=5", (1, 15), "no field `speed`"),
        ("services.chat.workload.rag.rte=5/s", (1, 28), "no field `rte`"),
        ("services.chat.from=w.yaml", (1, 15), "no field `from`"),
        ("services.chat.priority=017", (1, 24), "cannot be read"),
        ("optimize=cost\nversion=1", (1, 1), "one line"),
        ("optimize=\ud800", (1, 10), "cannot be read"),
        ("services" + ".a" * 5000 + "=1", (1, 1), "5001 keys one below the other"),
    ],
)
def test_a_bad_set_argument(argument: str, place: tuple[int, int], words: str) -> None:
    [finding] = loaded(VALID, sets=[argument]).diagnostics
    assert finding.code == "DGC121"
    assert words in finding.message
    assert finding.span is not None
    assert (finding.span.file, (finding.span.line, finding.span.column)) == ("--set", place)


def test_a_wrong_value_in_set_is_reported_as_everywhere() -> None:
    outcome = loaded(VALID, sets=["services.chat.workload.rag.rate=5"])
    assert said(outcome) == ["DGC113 --set:1:33"]


def test_set_reaches_a_bar_of_a_histogram() -> None:
    base = changed(("input_tokens: 1024", "input_tokens: {histogram: {100: 1}}"))
    outcome = loaded(base, sets=["services.chat.workload.rag.input_tokens.histogram.200=3"])
    assert outcome.diagnostics == ()


CLUSTER = """\
fabric: {type: infiniband, speed_per_nic: 200Gbit}
nodes:
  big:
    count: 3
    accelerator: {type: mi300x, per_node: 8}
"""


def test_from_reads_a_part_and_what_stands_beside_it_wins() -> None:
    text = (
        "version: 1\ncluster:\n  from: parts/cluster.yaml\n  nodes: {big: {count: 5}}\n"
        + VALID[VALID.index("services:") :]
    )
    outcome = loaded(text, {"parts/cluster.yaml": CLUSTER})
    assert outcome.diagnostics == ()
    assert outcome.value is not None
    big = outcome.value.spec.cluster.nodes["big"]
    assert (big.count, big.accelerator.per_node) == (5, 8)
    sources = outcome.value.sources
    assert sources.value(("cluster", "nodes", "big", "count")).file == NAME
    assert sources.value(("cluster", "nodes", "big", "accelerator", "per_node")) == SourceSpan(
        "parts/cluster.yaml", 5, 43, 5, 44
    )
    assert {str(path) for path in outcome.value.files} == {NAME, "parts/cluster.yaml"}


def test_from_stands_in_service_workload_and_class_and_paths_begin_at_their_file() -> None:
    text = VALID[: VALID.index("services:")] + "services:\n  chat: {from: parts/chat.yaml}\n"
    chat = "model: {id: deepseek-ai/DeepSeek-R1}\nengine: {vllm: 0.33.0}\nworkload: {from: loads/all.yaml}\n"
    others = {
        "parts/chat.yaml": chat,
        "parts/loads/all.yaml": "rag:\n  from: ../rag.yaml\n  rate: 7/s\n",
        "parts/rag.yaml": "input_tokens: 10\noutput_tokens: 20\nrate: 1/s\n",
    }
    outcome = loaded(text, others)
    assert outcome.diagnostics == ()
    assert outcome.value is not None
    rag = outcome.value.spec.services["chat"].workload["rag"]
    assert (rag.rate, rag.output_tokens) == (7.0, 20)
    assert outcome.value.sources.value(RATE).file == "parts/loads/all.yaml"
    assert outcome.value.beside(RATE, "trace.csv") == Path("parts/loads/trace.csv")


def test_a_mistake_in_the_other_file_is_reported_there() -> None:
    text = changed(("      rag:\n", "      rag:\n        from: rag.yaml\n"))
    assert said(loaded(text, {"rag.yaml": "concurrency: many\n"})) == ["DGC112 rag.yaml:1:14"]
    assert said(loaded(text, {"rag.yaml": "a: [\n"})) == ["DGC102 rag.yaml:1:5"]
    assert said(loaded(text, {"rag.yaml": ""})) == ["DGC105 rag.yaml:1:1"]


@pytest.mark.parametrize(
    ("said_path", "words"),
    [
        ("nowhere.yaml", "does not exist"),
        ("5", "wants the path"),
        ("", "wants the path"),
        ("[a]", "wants the path"),
        ('"a\\0b"', "does not exist"),
    ],
)
def test_a_from_that_leads_nowhere(said_path: str, words: str) -> None:
    column = 15 if said_path else 9
    [finding] = loaded(changed(("      rag:\n", f"      rag:\n        from: {said_path}\n"))).diagnostics
    assert finding.code == "DGC120"
    assert words in finding.message
    assert finding.span is not None
    assert (finding.span.line, finding.span.column) == (13, column)


def test_a_cycle_names_its_chain() -> None:
    text = changed(("      rag:\n", "      rag:\n        from: a.yaml\n"))
    [finding] = loaded(text, {"a.yaml": "from: b.yaml\n", "b.yaml": "from: a.yaml\nrate: 1/s\n"}).diagnostics
    assert finding.code == "DGC120"
    assert finding.span is not None
    assert (finding.span.file, finding.span.line, finding.span.column) == ("b.yaml", 1, 7)
    assert finding.notes == ("a.yaml -> b.yaml -> a.yaml",)


def test_a_file_that_reads_itself() -> None:
    text = changed(("cluster:\n", f"cluster:\n  from: ./{NAME}\n"))
    [finding] = loaded(text).diagnostics
    assert (finding.code, finding.notes) == ("DGC120", (f"{NAME} -> {NAME}",))


def test_from_elsewhere_is_an_unknown_field() -> None:
    outcome = loaded(changed(("    engine:\n", "    engine:\n      from: e.yaml\n")))
    assert said(outcome) == ["DGC110 17:7"]
    assert outcome.diagnostics[0].help is not None
    assert "`from:` may stand in" in outcome.diagnostics[0].help


def test_too_many_files_are_refused() -> None:
    others = {f"{n}.yaml": f"from: {n + 1}.yaml\n" for n in range(100)}
    [finding] = loaded(changed(("      rag:\n", "      rag:\n        from: 0.yaml\n")), others).diagnostics
    assert finding.code == "DGC120"
    assert "more than 64 files" in finding.message


def test_paths_on_disk_follow_links_and_folders(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "app").mkdir()
    spec = tmp_path / "app" / "disaggc.yaml"
    spec.write_text(
        "version: 1\ncluster: {from: ../shared/cluster.yaml}\n" + VALID[VALID.index("services:") :]
    )
    outcome = load([spec])
    assert outcome.value is not None
    assert outcome.value.sources.value(("cluster", "nodes", "big", "count")).file == str(
        tmp_path / "shared" / "cluster.yaml"
    )


_SPAN = SourceSpan("f", 1, 1, 1, 2)
_scalars = st.one_of(st.none(), st.integers(), st.text(max_size=3)).map(
    lambda value: ScalarNode(value, str(value), plain=True, span=_SPAN)
)
_trees = st.recursive(
    _scalars,
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(
        lambda items: MappingNode(
            {key: Entry(_SPAN, node) for key, node in items.items()}, flow=False, span=_SPAN
        )
    ),
    max_leaves=12,
)


@given(_trees, _trees, _trees)
def test_overlays_can_be_grouped(a: Node, b: Node, c: Node) -> None:
    """Laying b over a and c over that is laying c-over-b over a, unless a single value of b cuts a mapping of a."""
    one, other = plain(merge(merge(a, b), c)), plain(merge(a, merge(b, c)))
    if not _cuts(b):
        assert one == other


def _cuts(node: Node) -> bool:
    return not isinstance(node, MappingNode) or any(_cuts(entry.node) for entry in node.entries.values())


@given(_trees)
def test_laying_a_tree_over_itself_changes_nothing(tree: Node) -> None:
    assert plain(merge(tree, tree)) == plain(tree)


@given(_trees, _trees)
def test_the_upper_tree_always_wins(a: Node, b: Node) -> None:
    assert plain(merge(merge(a, b), b)) == plain(merge(a, b))
