"""Diagnostics as text: one module per format, each a pure function of a report. Knows no stage and prints nothing."""

from disaggc.diagnostics.render.report import Report

__all__ = ["Report"]
