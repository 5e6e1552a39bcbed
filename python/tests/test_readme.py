"""What the README shows in Python runs as it stands; what importing the package does."""

from __future__ import annotations

import contextlib
import io
import pathlib
import re
import subprocess
import sys

import onestep

README = pathlib.Path(__file__).parents[2] / "README.md"


def test_the_snippet_runs():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 1
    printed = io.StringIO()
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(printed):
        exec(blocks[0], names)
    assert printed.getvalue().startswith("Status.converged [")
    assert "(observed)" in printed.getvalue()


def test_the_version_is_that_of_the_project():
    text = (README.parent / "CMakeLists.txt").read_text(encoding="utf-8")
    assert onestep.__version__ == re.search(r"project\(onestep VERSION ([0-9.]+)", text)[1]


def test_importing_leaves_alone_what_it_does_not_need():
    code = "import sys, numpy; before = set(sys.modules); import onestep; print(*sorted(set(sys.modules) - before))"
    added = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    # The first two cost nothing; a wheel has its part of nanobind in a package of its own.
    free = {"__future__", "atexit", "nanobind_backend", "nanobind_backend._nb_backend_v1"}
    assert {name for name in added if not name.startswith("onestep")} <= free, added


def test_every_name_of_the_package_has_a_docstring():
    for name in dir(onestep):
        if not name.startswith("_") and name != "annotations" and name not in sys.modules:
            assert getattr(onestep, name).__doc__, name
