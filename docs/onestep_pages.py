"""What Sphinx does not do by itself for this site: links of the repository's own pages, the table of operations, figures that
take the colours of the page, and the signatures of the compiled module."""

from __future__ import annotations

import pathlib
import re
import sys

from docutils import nodes
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import inspect
from sphinx.util.docutils import SphinxDirective

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Where pages that are written for the repository link to files that are not pages of the site.
ELSEWHERE = {
    "CHANGELOG.md": "/changes.md",
    "CONTRIBUTING.md": "/contributing.md",
    "README.md": "/index.md",
}


def links_of_the_site(_app: Sphinx, path: pathlib.Path, _parent: str, content: list[str]) -> None:
    """Files of the repository that are included link to each other as they lie there."""
    if (ROOT / "docs" / path).resolve().parent != ROOT:
        return

    def other(link: re.Match[str]) -> str:
        words, target = link[1], link[2]
        if not (ROOT / target.split("#")[0]).is_file():
            return link[0]
        if target.startswith("docs/"):
            return f"[{words}](/{target.removeprefix('docs/')})"
        if target.startswith("examples/"):
            return f"[{words}](/examples.md#{pathlib.Path(target).name.replace('.', '-').replace('_', '-')})"
        return f"[{words}]({ELSEWHERE[target]})" if target in ELSEWHERE else words

    text = re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", other, content[0])
    content[0] = text.replace('src="docs/', 'src="/')


def sentences(_app: Sphinx, _what: str, _name: str, _object: object, _options: object, lines: list[str]) -> None:
    """Docstrings are sentences, in which no sign is markup but the backtick. The lists of parameters and attributes that
    scikit-learn asks for are definition lists under a heading."""
    found: list[str] = []
    for line in lines:
        if re.fullmatch(r"-{3,}", line.strip()):
            found[-1:] = [f".. rubric:: {found[-1]}", ""]
        elif line.lstrip().startswith(">>>"):
            found.append(line)
        else:
            parts = line.split("`")
            parts[::2] = [re.sub(r"([*|]|_\b)", r"\\\1", part) for part in parts[::2]]
            found.append("`".join(parts))
    lines[:] = found


def is_routine(thing: object, among=inspect.isroutine) -> bool:
    """Also the static methods of the compiled module."""
    return among(thing) or type(thing).__name__ == "nb_func"


class Operations(SphinxDirective):
    """A table of the elementwise operations, from include/onestep/operations.def."""

    def run(self) -> list[nodes.Node]:
        source = ROOT / "include/onestep/operations.def"
        self.env.note_dependency(str(source))
        rows = re.findall(r'^ONESTEP_(UNARY|BINARY|TERNARY)\((\w+),[^"\n]*"([^"]*)"', source.read_text("utf-8"), re.MULTILINE)
        assert len(rows) > 30, "the table of operations is no longer read"
        arguments = {"UNARY": "a", "BINARY": "a, b", "TERNARY": "a, b, c"}
        table, group = nodes.table(), nodes.tgroup(cols=2)
        table += group
        group += [nodes.colspec(colwidth=35), nodes.colspec(colwidth=65)]
        head, body = nodes.thead(), nodes.tbody()
        group += [head, body]
        head += _row(nodes.Text("function"), nodes.Text("value"))
        for kind, name, meaning in rows:
            body += _row(nodes.literal(text=f"{name}({arguments[kind]})"), nodes.Text(meaning))
        return [table]


def _row(*cells: nodes.Node) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        row += nodes.entry("", nodes.paragraph("", "", cell))
    return row


class Figure(SphinxDirective):
    """An SVG of docs/figures as part of the page, so that its lines and words have the page's colours."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        _, path = self.env.relfn2path(self.arguments[0])
        self.env.note_dependency(path)
        figure = nodes.figure(classes=["drawn"])
        figure += nodes.raw("", pathlib.Path(path).read_text("utf-8"), format="html")
        if self.content:
            caption = nodes.caption()
            paragraph = nodes.Element()
            self.state.nested_parse(self.content, self.content_offset, paragraph)
            for child in paragraph.children:
                caption += child.children
            figure += caption
        return [figure]


class Header(SphinxDirective):
    """A public header of C++: what its first comment says, then everything that it declares."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        source = ROOT / "include/onestep" / name
        self.env.note_dependency(str(source))
        first = source.read_text("utf-8").split("#pragma once")[0]
        comment = " ".join(line.removeprefix("// ") for line in first.splitlines() if line)
        text = f"{comment}\n\n:::{{doxygenfile}} {name}\n:::\n"
        node = nodes.Element()
        node += addnodes.highlightlang(lang="cpp", force=False, linenothreshold=sys.maxsize)
        self.state.nested_parse(StringList(text.splitlines(), source=str(source)), self.content_offset, node)
        return node.children


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("include-read", links_of_the_site)
    app.connect("autodoc-process-docstring", sentences)
    inspect.isroutine = is_routine
    app.add_directive("operations", Operations)
    app.add_directive("drawing", Figure)
    app.add_directive("header", Header)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
