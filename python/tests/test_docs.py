"""The Python of the pages in docs runs, and prints what they show.

The blocks of a page continue each other. A page that imports what is not installed is skipped. Blocks of ```output are
compared by tests/readme/same_output, which says how closely.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import pathlib
import re
import runpy
import subprocess
import sys
from typing import NamedTuple

import pytest

import onestep

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
SAME_OUTPUT = ROOT / "tests" / "readme" / "same_output"
# What a page may need and a user need not have; of onestep the modules that are about one of them.
OPTIONAL = {"cvxpy", "cvxpylayers", "jax", "matplotlib", "qpsolvers", "scipy", "sklearn", "torch"}


class Block(NamedTuple):
    line: int
    code: str
    shown: str | None


def blocks_of(page: pathlib.Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```\n(?:\n```output\n(.*?)^```$)?", text, re.DOTALL | re.MULTILINE)
    return [Block(text[: m.start(1)].count("\n"), m[1], m[2]) for m in found]


def imported(code: str) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {node.module or "", *(f"{node.module}.{name.name}" for name in node.names if node.module == "onestep")}
    return names


def skip_without_what_is_imported(blocks: list[Block]) -> None:
    for name in sorted(set().union(*(imported(block.code) for block in blocks))):
        parts = name.split(".")
        optional = parts[0] in OPTIONAL or (parts[0] == "onestep" and len(parts) > 1 and parts[1] in OPTIONAL)
        if optional and importlib.util.find_spec(".".join(parts[: 1 + (parts[0] == "onestep")])) is None:
            pytest.skip(f"needs {name}")
        if optional and parts[0] == "onestep":
            pytest.importorskip(parts[1], reason=f"needs {parts[1]}")


PAGES = {str(page.relative_to(DOCS)): page for page in sorted(DOCS.rglob("*.md")) if blocks_of(page)}


@pytest.fixture
def same_threads():
    before = onestep.threads()
    yield
    onestep.set_threads(before)


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.usefixtures("same_threads")
def test_a_page_does_what_it_shows(name, tmp_path, monkeypatch):
    blocks = blocks_of(PAGES[name])
    skip_without_what_is_imported(blocks)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = compile("\n" * block.line + block.code, str(PAGES[name]), "exec")
            exec(code, names)
        if block.shown is not None:
            (tmp_path / "shown").write_text(block.shown, encoding="utf-8")
            (tmp_path / "printed").write_text(printed.getvalue(), encoding="utf-8")
            same = subprocess.run([SAME_OUTPUT, "shown", "printed"], capture_output=True, encoding="utf-8")
            assert same.returncode == 0, f"{PAGES[name]}:{block.line}: {same.stdout}{same.stderr}"


@pytest.mark.skipif(not DOCS.is_dir(), reason="needs the sources' folder docs")
def test_all_blocks_of_python_were_found():
    for page in DOCS.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert text.count("```python") == len(blocks_of(page)), page
        if "build" not in page.parts:
            assert text.count("```output") <= len(re.findall(r"^```(?:python|cpp|sh)$", text, re.MULTILINE)), page


@pytest.mark.skipif(not DOCS.is_dir(), reason="needs the sources' folder docs")
@pytest.mark.parametrize("script", sorted((DOCS / "figures").glob("*.py")), ids=lambda script: script.stem)
def test_a_figure_is_what_the_code_beside_it_draws(script, tmp_path, monkeypatch):
    drawn = tmp_path / "drawn.svg"
    monkeypatch.setattr(sys, "argv", [str(script), str(drawn)])
    runpy.run_path(str(script), run_name="__main__")
    same = subprocess.run([SAME_OUTPUT, script.with_suffix(".svg"), drawn], capture_output=True, encoding="utf-8")
    assert same.returncode == 0, same.stdout[-500:]


@pytest.mark.skipif(not DOCS.is_dir(), reason="needs the sources' folder docs")
def test_the_reference_has_every_public_name_of_python():
    text = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^\.\. auto\w+:: (\w+)", text, re.MULTILINE))
    public = {name for name in dir(onestep) if not name.startswith("_") and not hasattr(getattr(onestep, name), "__path__")}
    assert public - {"annotations"} == shown


@pytest.mark.skipif(not DOCS.is_dir(), reason="needs the sources' folder docs")
@pytest.mark.parametrize("framework", ["cvxpylayers", "jax", "qpsolvers", "sklearn", "torch"])
def test_the_reference_has_every_public_name_of_a_framework(framework):
    text = (DOCS / "reference" / "python-frameworks.md").read_text(encoding="utf-8")
    section = re.search(rf"^## onestep\.{framework}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)[1]
    # Read, not imported: the framework need not be installed.
    source = (pathlib.Path(onestep.__file__).parent / framework / "__init__.py").read_text(encoding="utf-8")
    public = set(re.findall(r"^from \S+ import (\w+) as \1$", source, re.MULTILINE))
    assert public
    assert public == set(re.findall(r"^\.\. auto\w+:: (\w+)", section, re.MULTILINE))


@pytest.mark.skipif(not DOCS.is_dir(), reason="needs the sources' folder docs")
def test_the_reference_has_every_header_of_cpp():
    text = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("reference/cpp-*.md"))
    headers = {header.name for header in (ROOT / "include" / "onestep").glob("*.h")}
    assert headers - {"export.h", "onestep.h", "data.h"} == set(re.findall(r"\{header\} (\S+)", text))


@pytest.mark.skipif(not DOCS.is_dir(), reason="needs the sources' folder docs")
def test_every_status_and_error_is_explained():
    text = (DOCS / "how-to" / "errors.md").read_text(encoding="utf-8")
    words = [status.name for status in onestep.Status] + [name for name in dir(onestep) if re.fullmatch(r"\w+Error", name)]
    assert [word for word in words if f"`{word}`" not in text] == []
