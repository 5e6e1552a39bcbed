"""The examples in examples/python run, and what they assert of themselves holds."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLES = sorted((pathlib.Path(__file__).parents[2] / "examples" / "python").glob("*.py"))
OPTIONAL = ("jax", "sklearn", "torch")


def test_there_are_examples_for_each_kind_of_user() -> None:
    words = " ".join(example.read_text(encoding="utf-8") for example in EXAMPLES)
    assert all(f"import {name}" in words or f"from {name}" in words for name in ("numpy", *OPTIONAL))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_the_example_runs(example: pathlib.Path) -> None:
    text = example.read_text(encoding="utf-8")
    for name in OPTIONAL:
        if re.search(rf"^(?:import|from) (?:onestep\.)?{name}\b", text, re.MULTILINE) and importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}")
    # In a process of its own: it may choose what holds for all of it, such as torch's default dtype.
    done = subprocess.run([sys.executable, str(example)], capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert done.stdout
