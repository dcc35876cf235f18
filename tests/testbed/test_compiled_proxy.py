"""The compiled proxy does what the interpreted one does: the same wheel, with its extension modules and without them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests import compiled

pytestmark = pytest.mark.testbed

ROUNDS = 300
"""Of about 70 calls each, and as many requests through the whole proxy."""


@pytest.fixture(scope="module")
def package():
    try:
        return compiled.package()
    except compiled.NoCompilerError as error:
        pytest.skip(f"no compiled package: {error}")


@pytest.fixture(scope="module")
def twin(package, tmp_path_factory):
    """The same without what was compiled."""
    folder = tmp_path_factory.mktemp("interpreted") / "package"
    shutil.copytree(package, folder, ignore=shutil.ignore_patterns("*.so", "*.pyd"))
    return folder


def python(folder, *words):
    env = {**os.environ, **compiled.environment(folder), "PYTHONHASHSEED": "0"}
    done = subprocess.run([sys.executable, *words], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_every_compiled_module_can_be_imported_first(package):
    """A class body that names a class of a module that is not there yet would end the process."""
    names = compiled.modules(package)
    assert len(names) > 30
    for name in names:
        assert python(package, "-c", f"import {name} as module; print(module.__file__)")[0].endswith(".so"), (
            name
        )


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_inputs_have_the_same_outcomes(package, twin, seed):
    drawn = "-m", "tests.testbed.outcomes", str(seed), str(ROUNDS)
    (here, *expected), (there, *found) = python(twin, *drawn), python(package, *drawn)
    assert here.endswith('.py"')
    assert not there.endswith('.py"')
    assert len(expected) > ROUNDS * 60
    differing = [(a, b) for a, b in zip(expected, found, strict=True) if a != b]
    assert not differing, (
        f"{len(differing)} differ, first:\n{differing[0][0][:2000]}\n{differing[0][1][:2000]}"
    )
