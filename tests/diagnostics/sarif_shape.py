"""The part of SARIF 2.1.0 that the renderer writes, as a strict JSON Schema: required keys, types and limits."""

from __future__ import annotations

_TEXT = {
    "type": "object",
    "required": ["text"],
    "additionalProperties": False,
    "properties": {"text": {"type": "string"}},
}
_ONE = {"type": "integer", "minimum": 1}
_PHYSICAL = {
    "type": "object",
    "required": ["artifactLocation", "region"],
    "additionalProperties": False,
    "properties": {
        "artifactLocation": {
            "type": "object",
            "required": ["uri"],
            "additionalProperties": False,
            "properties": {
                "uri": {"type": "string", "pattern": r"^([A-Za-z0-9\-._~/!$&'()*+;=@]|%[0-9A-F]{2})+$"}
            },
        },
        "region": {
            "type": "object",
            "required": ["startLine", "startColumn", "endLine", "endColumn"],
            "additionalProperties": False,
            "properties": dict.fromkeys(("startLine", "startColumn", "endLine", "endColumn"), _ONE),
        },
    },
}
_LOCATION = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "id": {"type": "integer", "minimum": -1},
        "message": _TEXT,
        "physicalLocation": _PHYSICAL,
        "logicalLocations": {
            "type": "array",
            "uniqueItems": True,
            "items": {"type": "object", "properties": {"fullyQualifiedName": {"type": "string"}}},
        },
    },
}
SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "additionalProperties": False,
                "properties": {
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name", "rules"],
                                "properties": {
                                    "semanticVersion": {"type": "string"},
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": {
                                            "type": "object",
                                            "required": ["id"],
                                            "additionalProperties": False,
                                            "properties": {
                                                "id": {"type": "string"},
                                                "name": {"type": "string"},
                                                "shortDescription": _TEXT,
                                            },
                                        },
                                    },
                                },
                            }
                        },
                    },
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["message", "ruleId", "ruleIndex", "level"],
                            "additionalProperties": False,
                            "properties": {
                                "ruleId": {"type": "string"},
                                "ruleIndex": {"type": "integer", "minimum": 0},
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": _TEXT,
                                "locations": {"type": "array", "items": _LOCATION},
                                "relatedLocations": {
                                    "type": "array",
                                    "uniqueItems": True,
                                    "items": _LOCATION,
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}
