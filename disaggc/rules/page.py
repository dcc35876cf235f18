"""The page of a code, for `disaggc explain CODE`: why, what fails, what passes, where the fact is from."""

from __future__ import annotations

import sys
from inspect import cleandoc

from disaggc.diagnostics import CODES, Code, code_named
from disaggc.rules.registry import rule_codes, rule_for
from disaggc.rules.rule import Edit, Rule, SpecRule


def rule_page(code: str) -> str | None:
    """Plain text about one code or kebab-case name; None when there is no such code."""
    rule = rule_for(code)
    if rule is not None:
        return _page(rule)
    known = CODES.get(code.upper()) or code_named(code)
    return f"{known.id} {known.name}\n\n{known.page}\n" if known is not None else None


def known_codes() -> tuple[Code, ...]:
    """Every code that exists, the stages' and the rules', by code; imports no rule."""
    return tuple(sorted((*CODES.values(), *rule_codes()), key=lambda code: code.id))


def _page(rule: Rule) -> str:
    doc = cleandoc(sys.modules[rule.check.__module__].__doc__ or "")
    kind = "about the spec" if isinstance(rule, SpecRule) else "about the plan"
    parts = [f"{rule.code} {rule.name} ({rule.severity}, {kind})", doc]
    if isinstance(rule, SpecRule):
        parts += ["Fails, on top of a sound spec:", *(_indented(text) for text in rule.fails)]
        parts += ["Passes:", *(_indented(text) for text in rule.passes)]
    else:
        parts += ["Fails when a sound plan is changed like this:", *(_edits(edits) for edits in rule.fails)]
    parts.append("Sources:\n" + "\n".join(f"  {source}" for source in rule.sources))
    if rule.suppressible:
        parts.append(
            f"Silence one finding with a comment on its line: `# disaggc: ignore[{rule.code}] reason`"
        )
    return "\n\n".join(parts) + "\n"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in cleandoc(text).splitlines())


def _edits(edits: tuple[Edit, ...]) -> str:
    return "\n".join(f"    {edit.at}: {'removed' if edit.to is None else edit.to!r}" for edit in edits)
