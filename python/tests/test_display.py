"""What people see while they wait, and what notebooks show of a result."""

from __future__ import annotations

import io
import pickle
import re
import sys
import types
import xml.dom.minidom

import numpy as np
import pytest
from hypothesis import given, strategies

import onestep
from onestep import Progress, _html

QUADRATIC = onestep.newton(lambda x, t: np.sum((x - t) ** 2))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Tqdm:
    """What Progress uses of tqdm."""

    made: list[Tqdm] = []

    def __init__(self, desc, file, unit, initial):
        self.desc, self.n, self.start_t, self.closed, self.texts = desc, initial, 100.0, False, []
        Tqdm.made.append(self)

    def set_postfix_str(self, text, refresh):
        self.texts.append(text)

    def update(self, by):
        self.n += by

    def close(self):
        self.closed = True


def slow(callback, **options):
    return onestep.gradient_descent(lambda x, t: np.sum(np.array([1.0, 0.01]) * (x - t) ** 2), callback=callback, **options)


@pytest.fixture
def without_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)


@pytest.fixture
def with_tqdm(monkeypatch):
    Tqdm.made = []
    monkeypatch.setitem(sys.modules, "tqdm", types.SimpleNamespace(tqdm=Tqdm))
    return Tqdm.made


def test_progress_is_written_over_one_line_of_a_terminal(without_tqdm):
    terminal = Terminal()
    with Progress("descent", delay=0, file=terminal) as progress:
        s = slow(progress).solve(np.zeros(2), np.ones(2))
    shown = terminal.getvalue()
    assert shown.count("\n") == 1 and shown.endswith("\n")
    assert shown.startswith("\rdescent: 1 iteration, step 1\x1b[K\rdescent: ")
    number, step = re.findall(r"\rdescent: (\d+) iterations, step (\S+)\x1b\[K", shown)[-1]
    assert int(number) == s.statistics.iterations and 0 < float(step) < 1e-9


def test_progress_is_silent_where_nobody_watches_and_where_it_is_short(without_tqdm):
    for file, delay in ((io.StringIO(), 0), (Terminal(), 3600)):
        with Progress(delay=delay, file=file) as progress:
            assert slow(progress).solve(np.zeros(2), np.ones(2)).status.is_solution
        assert file.getvalue() == ""


def test_each_solve_has_a_bar_of_tqdm_which_ends(with_tqdm):
    solver = slow(Progress("mine", delay=0, file=Terminal()))
    counts = [solver.solve(np.zeros(2), t).statistics.iterations for t in (np.ones(2), np.full(2, 3.0))]
    assert [bar.n for bar in with_tqdm] == counts
    assert [bar.closed for bar in with_tqdm] == [True, False]
    solver.solve(np.ones(2), np.ones(2))
    assert with_tqdm[1].closed
    assert all(bar.desc == "mine" and bar.start_t < 100 and "step" in bar.texts[-1] for bar in with_tqdm[:2])


def test_minimise_shows_its_objective_and_criticality(with_tqdm):
    inner = onestep.Inner(QUADRATIC, np.zeros(2), lambda x: np.sum((x - 3) ** 2 + (x - 3) ** 4))
    with Progress(delay=0, file=Terminal()) as progress:
        o = onestep.minimise(inner, onestep.Parameter.real(np.zeros(2)), callback=progress)
    (bar,) = with_tqdm
    assert bar.closed and bar.n == o.iterations
    assert re.fullmatch(r"objective \S+, criticality \S+", bar.texts[-1])


def test_a_progress_bar_goes_with_pickled_options():
    again = pickle.loads(pickle.dumps(Progress("mine", delay=1.0)))
    assert again.description == "mine" and again.delay == 1.0 and repr(again) == "Progress('mine')"


def test_real_tqdm_takes_what_progress_gives_it():
    pytest.importorskip("tqdm", reason="tqdm is not installed")
    terminal = Terminal()
    with Progress("real", delay=0, file=terminal) as progress:
        slow(progress).solve(np.zeros(2), np.ones(2))
    assert "real" in terminal.getvalue() and "step" in terminal.getvalue()


def rows(shown):
    """The table as a dict, of well-formed markup."""
    table = xml.dom.minidom.parseString(shown).documentElement

    def text(node):
        return node.data if node.nodeType == node.TEXT_NODE else "".join(map(text, node.childNodes))

    return {text(r.firstChild): text(r.lastChild) for r in table.getElementsByTagName("tr")}


def test_notebooks_show_a_solution_and_its_certificate():
    s = QUADRATIC.solve(np.zeros(20), np.arange(20.0))
    shown = rows(s._repr_html_())
    assert shown["status"] == "✓ converged" and "iteration" in shown["cost"]
    assert shown["x"] == "[0, 1, 2, 3, 4, 5, 6, 7, …] (20)"
    c = rows(s.certificate(np.ones(20))._repr_html_())
    assert re.match(r"at most \S+ \(observed\)", c["error"])
    refused = onestep.newton(lambda x, t: np.sum(np.abs(x - t)) + np.sum(x**2)).solve(np.ones(1), np.zeros(1))
    refused = refused.even_if_unconverged().certificate(np.ones(1))
    if refused.basis is onestep.Certificate.Basis.refused:
        assert rows(refused._repr_html_())["because"] == refused.reason


def test_notebooks_show_a_solve_that_failed_as_failed():
    s = onestep.newton_root(lambda x, t: x**2 + t, max_iterations=50).solve(np.ones(1), np.ones(1))
    assert rows(s._repr_html_())["status"].startswith("✗")


def test_notebooks_show_many_solutions_by_status():
    root = onestep.newton_root(lambda x, t: x**2 - t)
    many = onestep.solve_many(root, [np.array([4.0]), np.array([-1.0])], start=np.ones(1))
    shown = rows(many._repr_html_())
    assert shown["problems"] == "2" and shown["not solved"] == "1"


def test_notebooks_show_an_outcome_with_its_course():
    inner = onestep.Inner(QUADRATIC, np.zeros(2), lambda x: np.sum((x - 3) ** 2 + (x - 3) ** 4))
    o = onestep.minimise(inner, onestep.Parameter.real(np.zeros(2)))
    shown = o._repr_html_()
    values = rows(shown)
    assert values["status"] == "✓ converged" and values["theta"].startswith("[3, 3]")
    points = re.search(r'points="([^"]*)"', shown)
    assert points is not None and len(points.group(1).split()) == len(o.history)


@given(strategies.floats(1e-300, 1e300))
def test_a_bound_is_rounded_up_where_it_is_shown(bound):
    shown = float(_html._up(bound))
    assert bound <= shown <= 1.1 * bound
