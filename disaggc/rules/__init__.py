"""Stage 3: checks of a resolved spec and of a plan. One check = one file = one code; knows no solver and no files."""

from disaggc.rules.checking import check, check_plan
from disaggc.rules.page import known_codes, rule_page
from disaggc.rules.registry import plan_rules, rule_for, spec_rules, suppressible_errors

__all__ = [
    "check",
    "check_plan",
    "known_codes",
    "plan_rules",
    "rule_for",
    "rule_page",
    "spec_rules",
    "suppressible_errors",
]
