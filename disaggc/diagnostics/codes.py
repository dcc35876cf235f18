"""Codes of findings that a stage raises while reading; codes of checks stand in the check's own file under rules/.

A code is never reused. Ranges: 1xx file and shape, 2xx names and catalog, 3xx memory and parallelism, 4xx KV transfer
and network, 5xx objectives and infeasibility, 6xx targets, 7xx state and apply, 8xx proxy, 9xx watch.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """A stable identifier with its kebab-case name and its page (shown by `disaggc explain CODE`)."""

    id: str
    name: str
    page: str


_TABLE = (
    Code(
        "DGC101",
        "unreadable-file",
        "The file cannot be read: missing, a directory, not text, or larger than the limit.",
    ),
    Code(
        "DGC102",
        "yaml-syntax",
        "The file is not well-formed YAML: a tab in indentation, a missing colon, an open quote.",
    ),
    Code(
        "DGC103", "duplicate-key", "A key stands twice in one mapping; YAML would silently keep the last one."
    ),
    Code(
        "DGC104",
        "ambiguous-scalar",
        "YAML 1.1 would read this scalar as another type than written; quote it.",
    ),
    Code(
        "DGC105",
        "document-shape",
        "The document is empty, is not a mapping, or nests or expands beyond the limits.",
    ),
    Code("DGC110", "unknown-field", "The field does not exist here. disaggc never ignores a field."),
    Code("DGC111", "missing-field", "A required field is absent."),
    Code("DGC112", "wrong-type", "The value has another type than the field takes."),
    Code("DGC113", "bad-quantity", "The quantity lacks a unit, has a wrong one, or lies outside its range."),
    Code("DGC114", "bad-value", "The value is not one of those the field takes."),
    Code("DGC115", "field-conflict", "Two fields exclude each other, or one needs another."),
    Code(
        "DGC116",
        "unused-field",
        "The field is not used by the chosen target or mode; remove it or choose otherwise.",
    ),
    Code(
        "DGC120",
        "bad-from",
        "A `from:` reference cannot be followed: missing file, a cycle, or a forbidden place.",
    ),
    Code("DGC121", "bad-set", "A --set argument does not name a field or has a value that cannot be read."),
    Code("DGC130", "unused-suppression", "A `# disaggc: ignore[...]` comment suppresses nothing."),
    Code("DGC131", "bad-suppression", "A `# disaggc: ignore[...]` comment has no reason or names no code."),
    Code(
        "DGC190",
        "rule-crashed",
        "A check failed inside; this is a bug of that check, the other checks still ran.",
    ),
    Code(
        "DGC201",
        "unknown-accelerator",
        "The catalog does not know this accelerator id; give facts inline instead.",
    ),
    Code(
        "DGC202",
        "unknown-model",
        "The catalog does not know this model id; give `config:` with its config.json.",
    ),
    Code("DGC203", "bad-model-config", "The model's config.json lacks what is needed to size it."),
    Code(
        "DGC204", "engine-version-nearest", "No snapshot of this vLLM version; the nearest lower one is used."
    ),
    Code(
        "DGC205", "unknown-engine-version", "The vLLM version is older than every snapshot, or not a version."
    ),
    Code("DGC206", "bad-calibration", "The calibration file cannot be used."),
    Code(
        "DGC207",
        "step-times-missing",
        "The library whose step times the spec asks for is not installed here.",
    ),
    Code(
        "DGC208",
        "step-times-not-measured",
        "The library has no measured step times of this model on this accelerator; hardware priors are used.",
    ),
    Code(
        "DGC209",
        "calibration-not-used",
        "The calibration file says nothing of a service, or not in the shapes planned; hardware priors are used.",
    ),
    Code(
        "DGC240",
        "engine-refuses",
        "The installed vLLM's own argument parser refuses a generated command line.",
    ),
    Code(
        "DGC241",
        "engine-version-differs",
        "The installed vLLM, whose parser was asked, is not the version that the spec pins.",
    ),
    Code("DGC341", "plan-node-differs", "A node of the plan is not what the spec says, or does not exist."),
    Code("DGC342", "plan-slot-misfit", "A replica's place cannot hold its shape."),
    Code(
        "DGC343",
        "plan-size-differs",
        "A pool of the plan does not fit, or counts with other sizes than the facts.",
    ),
    Code(
        "DGC462",
        "plan-vendors-mixed",
        "The plan pairs accelerators of two vendors, whose KV cannot be exchanged.",
    ),
    Code("DGC501", "infeasible", "No layout on this cluster meets the stated requirements (proved)."),
    Code("DGC502", "not-proved", "The solver stopped at its limit before an answer was proved."),
    Code("DGC540", "plan-services-differ", "The plan has other services than the spec."),
    Code("DGC541", "plan-contradicts-itself", "The plan states a count twice, and differently."),
    Code("DGC542", "plan-breaks-constraint", "The plan breaks a constraint of the spec."),
    Code(
        "DGC543",
        "plan-claim-differs",
        "The plan claims another performance than its layout is predicted to have.",
    ),
    Code("DGC544", "plan-misses-objective", "The plan's layout does not keep an objective."),
    Code(
        "DGC545",
        "deadline-below-prediction",
        "A deadline of the proxy is below the p99 that the plan predicts; healthy requests would be ended.",
    ),
    Code("DGC550", "mode-does-not-run", "A layout that the command line names cannot run on this cluster."),
    Code(
        "DGC551", "failure-after-end", "A failure that `simulate` was asked for comes after the last answer."
    ),
    Code("DGC601", "unknown-target", "The target is not one of those disaggc ships."),
    Code("DGC602", "target-unsupported", "The plan needs something that this target cannot express."),
    Code(
        "DGC603",
        "unsafe-text",
        "A text cannot be placed in the target's format without changing its meaning.",
    ),
    Code("DGC604", "missing-address", "The target needs the nodes' addresses, the spec gives only a count."),
    Code("DGC605", "open-engines", "The target cannot restrict engines to the cluster's own addresses here."),
    Code(
        "DGC606",
        "proxy-image-missing",
        "No image is given for the proxy; the engines' image is used and must hold disaggc.",
    ),
    Code(
        "DGC607",
        "one-replica-role",
        "A role has one replica: while it restarts or its node is drained, nothing serves the role.",
    ),
    Code("DGC701", "bad-lock", "disaggc.lock cannot be read or belongs to another spec."),
    Code(
        "DGC702",
        "lock-holds-back",
        "The lock keeps a layout that is feasible but no longer the best; `--upgrade` leaves it.",
    ),
    Code("DGC703", "lock-not-kept", "The layout in the lock is no longer feasible, so it was solved anew."),
)

CODES: dict[str, Code] = {code.id: code for code in _TABLE}


def code_named(name: str) -> Code | None:
    """The code with this kebab-case name, if any."""
    return next((code for code in _TABLE if code.name == name), None)
