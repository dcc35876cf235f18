from __future__ import annotations

from disaggc.cli.main import main


def test_a_name_that_is_no_code_leads_to_those_with_its_words(capsys):
    assert main(["explain", "kv-lease"]) == 1
    told = capsys.readouterr().err
    assert "`kv-lease` is neither a file nor a code" in told
    assert "lease" in told.partition("there are:")[2]
    assert "DGC101" not in told


def test_a_number_that_is_no_code_leads_to_its_hundred(capsys):
    assert main(["explain", "DGC199"]) == 1
    told = capsys.readouterr().err
    assert "DGC101 unreadable-file" in told
    assert "DGC201" not in told
