"""What an installed vLLM says of the command lines a spec leads to, as findings about the spec. Off when there is none.

`validate` may not load the solver, and command lines come from a plan: the plan is made by a process of its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from disaggc.compilation import Request
from disaggc.diagnostics import Diagnostic, FieldPath, error, warning
from disaggc.emit.engine_part import EnginePart, engine_parts
from disaggc.hosts.engine_parser import CommandLine, ProbeError, Verdict, judge
from disaggc.ir.canonical import UnreadablePlanError, read_saved_plan
from disaggc.ir.plan import (
    Argument,
    DeploymentPlan,
    FromSecret,
    LeaderAddress,
    Literally,
    NodeRank,
    OwnAddress,
    Value,
)

PLANNED_S = 300
LOOPBACK = "127.0.0.1"
_OF_THE_DEVICE = re.compile(
    r"\b(cuda|rocm|hip|gpu|gpus|cpu|xpu|device|platform|capability|backend|kernel|triton|flash|quantization|fp8|fp4|nccl|"
    r"world size|not implemented|NotImplementedError|libcuda|driver|import\w*)\b",
    re.IGNORECASE,
)
"""Words of verdicts that would be others with an accelerator; they are not taken."""
_START = "import sys; from disaggc.cli.main import main; sys.exit(main(sys.argv[1:]))"


class NoOpinionError(Exception):
    """vLLM was not asked; the message says why."""


@dataclass(frozen=True, slots=True)
class _Asked:
    part: EnginePart
    line: CommandLine


def opinion(python: str, request: Request, environ: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """Findings DGC240 and DGC241 of the vLLM an interpreter has; NoOpinionError where it could not be asked."""
    asked = tuple(_lines(_plan(request)))
    try:
        judgement = judge(python, [one.line for one in asked], environ)
    except ProbeError as problem:
        raise NoOpinionError(str(problem)) from None
    found: dict[Diagnostic, None] = {}
    for one, verdict in zip(asked, judgement.verdicts, strict=True):
        for finding in (*_of_version(one.part, judgement.version), *_of_verdict(one.part, verdict)):
            found[finding] = None
    return tuple(found)


def _plan(request: Request) -> DeploymentPlan:
    with tempfile.TemporaryDirectory(prefix="disaggc-") as folder:
        saved = Path(folder) / "plan.json"
        words = ["plan", *(word for file in request.files for word in ("-f", str(file)))]
        words += [word for given in request.sets for word in ("--set", given)]
        words += ["--target", request.target] if request.target else []
        try:
            subprocess.run(  # noqa: S603 - ourselves
                [sys.executable, "-c", _START, *words, "--refresh=false", "--quiet", "--out", str(saved)],
                capture_output=True,
                timeout=PLANNED_S,
                check=False,
            )
            return read_saved_plan(saved.read_text(encoding="utf-8"))
        except (OSError, subprocess.TimeoutExpired, UnreadablePlanError):
            raise NoOpinionError(
                "there is no plan, so there are no command lines; see `disaggc plan`"
            ) from None


def _lines(plan: DeploymentPlan) -> Iterator[_Asked]:
    """Every command line is parsed; configured, which takes seconds, is one of each kind.

    That is the first replica of every pool, its first and its second node.
    """
    for part in engine_parts(plan):
        literal = {v.name: v.value.value for v in part.replica.env if isinstance(v.value, Literally)}
        here = Path(part.service.model.path).is_dir()
        first = part.replica is part.pool.replicas[0] and part.slot.rank <= 1
        words = part.words(partial(_text, part))
        yield _Asked(part, CommandLine(words[1:], literal, configure=here and first))


def _text(part: EnginePart, value: Value) -> str:
    match value:
        case Literally():
            return value.value
        case OwnAddress():
            return part.node.address or LOOPBACK
        case LeaderAddress():
            return part.leader.address or LOOPBACK
        case NodeRank():
            return str(part.slot.rank * value.times + value.plus)
        case FromSecret():
            return "secret"


def _of_version(part: EnginePart, version: str) -> Iterator[Diagnostic]:
    pinned = part.service.engine.version
    if version.partition("+")[0] != pinned.partition("+")[0]:
        name = part.service.name
        yield warning(
            "DGC241",
            f"`vllm` {pinned} is pinned, vLLM {version} is installed and was asked about the command lines of `{name}`",
            ("services", name, "engine", "vllm"),
            help=f"install vllm=={pinned} where disaggc runs, or write `--no-engine-parser`",
        )


def _of_verdict(part: EnginePart, verdict: Verdict) -> Iterator[Diagnostic]:
    if verdict.stage == "ok" or (verdict.stage == "config" and _OF_THE_DEVICE.search(verdict.message)):
        return
    argument = blamed(part.arguments(), verdict.message)
    path = _path(argument, part)
    said = verdict.message.removeprefix("vllm serve: error: ").removeprefix("Value error, ").strip()
    flag = f"`{argument.flag}`" if argument is not None else "the command line"
    yield error(
        "DGC240",
        f"vLLM's own parser refuses {flag} of pool `{part.pool.address}`: {said[:300]}",
        path,
        help="correct the setting; the words after the colon are vLLM's",
    )


def blamed(arguments: Sequence[Argument], message: str) -> Argument | None:
    """The argument that a complaint names, one of the user's before one of the compiler's, the longest name first."""
    spoken = message.lower().replace("_", "-")

    def named(argument: Argument) -> bool:
        name = argument.flag.lstrip("-").removeprefix("no-").replace("_", "-")
        return re.search(rf"(?<![a-z0-9])(?<![a-z0-9]-){re.escape(name)}(?![a-z0-9-])", spoken) is not None

    found = [argument for argument in arguments if named(argument)]
    return max(found, key=lambda a: (bool(a.because), len(a.flag)), default=None)


def _path(argument: Argument | None, part: EnginePart) -> FieldPath:
    """The user's line; a flag's name may hold dots of its own."""
    if argument is None or not argument.because:
        return ("services", part.service.name, "engine")
    where, settings, flag = argument.because[0].partition(".settings.")
    return (*where.split("."), *(("settings", flag) if settings else ()))
