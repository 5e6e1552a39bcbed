"""The GIL is released in solves and derivatives and taken in callbacks; Ctrl-C stops a solve; forks work."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import onestep


def endless(callback=None):
    return onestep.fixed_point(lambda x, t: 0.999999999 * x + t, max_iterations=10**9, callback=callback)


def test_other_threads_run_while_one_solves():
    stop = False
    solving = threading.Thread(
        target=lambda: endless(lambda i: not stop if i.number % 1000 == 0 else True).solve(np.ones(3), np.ones(3))
    )
    solving.start()
    counted = sum(range(100_000))
    stop = True
    solving.join()
    assert counted == 4999950000


def test_two_solves_without_callbacks_are_inside_the_library_at_once():
    """Each thread has to see the other one enter: a solve that held the GIL would never let it."""
    entered = threading.Barrier(2, timeout=30)

    def apply(x, t):
        if x[0] == 0:
            entered.wait()
        return 0.5 * x + t

    def run(_):
        return onestep.fixed_point(onestep.ForeignStep(apply)).solve(np.zeros(1), np.ones(1)).x

    with ThreadPoolExecutor(2) as pool:
        for x in pool.map(run, range(2)):
            np.testing.assert_allclose(x, 2, rtol=1e-8)


def test_threads_may_share_a_solver_a_solution_and_a_prepared(logistic):
    fit = onestep.newton(logistic.objective)
    s = fit.solve(np.zeros(4), logistic.w)
    prepared = fit.prepare(np.zeros(4), logistic.w)
    expected = s.vjp(s.x)

    def run(i):
        factor = 1 + i % 3
        x = (fit if i % 2 else prepared).solve(np.zeros(4), factor * logistic.w).x
        np.testing.assert_array_equal(s.vjp(s.x), expected)
        return factor, x

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(run, range(200)))
    for factor, x in results:
        np.testing.assert_allclose(x, fit.solve(np.zeros(4), factor * logistic.w).x, rtol=1e-12)


def test_a_callback_that_asks_for_its_own_computation_is_misuse():
    holder = []

    def again(iteration):
        if holder:
            holder[0].solve(np.zeros(2), np.ones(2))

    holder.append(onestep.newton(lambda x, t: np.sum((x - t) ** 4), callback=again).prepare(np.zeros(2), np.ones(2)))
    with pytest.raises(onestep.MisuseError, match="a callback asks"):
        holder[0].solve(np.zeros(2), np.ones(2))


def test_many_problems_with_a_python_callback_on_several_threads(logistic):
    threads = onestep.threads()
    seen = []
    fit = onestep.newton(logistic.objective, callback=lambda i: seen.append(i.number))
    onestep.set_threads(2)
    try:
        many = onestep.solve_many(fit, np.zeros(4), [logistic.w * (1 + k / 10) for k in range(20)])
    finally:
        onestep.set_threads(threads)
    assert many.failed == []
    assert len(seen) == sum(many[i].statistics.iterations for i in range(20))


@pytest.fixture
def ctrl_c():
    """As in a terminal: a shell lets its background jobs ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("what", ["traced", "foreign", "many", "callback", "minimise"])
def test_ctrl_c_stops_a_solve(what):
    solver = endless()
    if what == "foreign":
        solver = onestep.fixed_point(onestep.ForeignStep(lambda x, t: 0.999999999 * x + t), max_iterations=10**9)
    if what == "callback":
        solver = endless(lambda i: True)
    interrupt = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    interrupt.start()
    began = time.thread_time()
    with pytest.raises(KeyboardInterrupt):
        if what == "many":
            onestep.solve_many(solver, np.ones(3), [np.ones(3)] * 2)
        elif what == "minimise":
            inner = onestep.Inner(solver, np.ones(3), lambda x: np.sum(x**2))
            onestep.minimise(inner, onestep.Parameter.real(np.ones(3)))
        else:
            solver.solve(np.ones(3), np.ones(3))
    assert time.thread_time() - began < 20  # of CPU time: it would take minutes
    interrupt.join()
    # Nothing is lost: the solver works afterwards.
    assert solver.with_options(max_iterations=3).solve(np.ones(3), np.ones(3)).statistics.iterations == 3


def short(step=lambda x, t: 0.999999999 * x + t):
    """Takes some twenty milliseconds."""
    return onestep.fixed_point(step, max_iterations=150_000)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("what", ["many", "minimise"])
def test_ctrl_c_stops_many_short_solves(what):
    """Each of them is over before a solve that looked at its own clock would look for signals."""
    interrupt = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    count, traced = 1000, []

    def judge(x):
        traced.append(None)
        if len(traced) == count:  # the last of what Python runs, which sees signals by itself
            interrupt.start()
        return np.sum(x**2)

    with pytest.raises(KeyboardInterrupt):
        if what == "many":
            interrupt.start()
            began = time.thread_time()
            onestep.solve_many(short(), np.ones(3), [np.ones(3)] * count)
        else:
            step = onestep.traced(lambda x, t: 0.999999999 * x + t, np.ones(3), np.ones(3))
            inner = [onestep.Inner(short(step), np.ones(3), judge) for _ in range(count)]
            began = time.thread_time()
            onestep.minimise(inner, onestep.Parameter.real(np.ones(3)))
    assert time.thread_time() - began < 4  # of CPU time: it would take ten seconds and more
    interrupt.join()


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_stops_a_jacobian_between_groups_of_directions():
    n = 2000  # as many directions, each of which goes over all steps
    solver = onestep.fixed_point(lambda x, t: 0.999 * x + t, max_iterations=5000)
    s = solver.solve(np.ones(n), np.ones(n), estimator=onestep.Unrolled()).even_if_unconverged()
    interrupt = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    interrupt.start()
    began = time.thread_time()
    with pytest.raises(KeyboardInterrupt):
        s.jacobian()
    assert time.thread_time() - began < 5  # of CPU time
    interrupt.join()


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_stops_the_solve_many_of_its_thread_alone():
    shared, ended = endless().with_options(time_limit=2.0), []

    def solve():
        ended.append(onestep.solve_many(shared, np.ones(3), [np.ones(3)] * 2).statuses)

    thread = threading.Thread(target=solve)
    thread.start()
    interrupt = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        onestep.solve_many(shared, np.ones(3), [np.ones(3)] * 2)
    thread.join()
    interrupt.join()
    assert ended == [[onestep.Status.time_limit] * 2]


def solve_in_child(factor):
    fit = onestep.newton(lambda x, t: np.sum((x - t) ** 4 + (x - t) ** 2))
    return fit.solve(np.zeros(3), factor * np.ones(3)).x


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process")
def test_processes_solve_after_a_fork(method):
    solve_in_child(1.0)
    with multiprocessing.get_context(method).Pool(2) as pool:
        for factor, x in enumerate(pool.map(solve_in_child, range(4))):
            np.testing.assert_allclose(x, factor, atol=1e-9)


def ended_of_child(work):
    """What a child of fork() ends with: 0 where `work` is true, -SIGALRM where it does not end."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            os._exit(0 if work() else 1)
        except BaseException:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:This process")
def test_a_child_solves_with_a_solver_that_a_thread_of_its_parent_was_tracing_for():
    parent, is_tracing, may_go_on = os.getpid(), threading.Event(), threading.Event()

    def objective(x, t):
        if os.getpid() == parent:
            is_tracing.set()
            may_go_on.wait()
        return np.sum((x - t) ** 2)

    fit = onestep.newton(objective)
    with ThreadPoolExecutor(1) as pool:
        solved = pool.submit(fit.solve, np.zeros(2), np.ones(2))
        is_tracing.wait()
        ended = ended_of_child(lambda: np.array_equal(fit.solve(np.zeros(2), np.ones(2)).x, np.ones(2)))
        may_go_on.set()
        assert ended == 0
        np.testing.assert_array_equal(solved.result().x, np.ones(2))


@pytest.mark.filterwarnings("ignore:This process")
def test_a_child_is_refused_what_a_thread_of_its_parent_was_computing_with():
    is_inside, may_go_on = threading.Event(), threading.Event()

    def vjp(x, theta, c):
        is_inside.set()
        may_go_on.wait()
        return 0.5 * c, (c,)

    s = onestep.fixed_point(onestep.ForeignStep(lambda x, t: 0.5 * x + t, vjp=vjp)).solve(np.zeros(2), np.ones(2))

    def is_refused():
        with pytest.raises(onestep.MisuseError, match="when this process was forked.*solve again"):
            s.vjp(np.ones(2))
        return True

    with ThreadPoolExecutor(1) as pool:
        gradient = pool.submit(s.vjp, np.ones(2))
        is_inside.wait()
        ended = ended_of_child(is_refused)
        may_go_on.set()
        assert ended == 0
        np.testing.assert_allclose(gradient.result(), [2.0, 2.0])


AT_THE_END = """
import threading, time
import numpy as np
import onestep

solver = onestep.fixed_point(lambda x, t: 0.999999999 * x + t, max_iterations=10**9)
foreign = onestep.fixed_point(onestep.ForeignStep(lambda x, t: 0.999999999 * x + t), max_iterations=10**9)
called = solver.with_options(callback=lambda i: True)
many = lambda x, t: onestep.solve_many(called, x, [t] * 8)
for solve in (solver.solve, foreign.solve, called.solve, many):
    threading.Thread(target=solve, args=(np.ones(3), np.ones(3)), daemon=True).start()
time.sleep(0.2)
print("ended")
"""


def test_a_program_ends_while_a_thread_solves():
    done = subprocess.run([sys.executable, "-c", AT_THE_END], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")


TWO_TRACE = """
import time
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from onestep import _core

solver = _core.newton(lambda x, t: np.sum((x - t) ** 2)).from_(np.zeros(2))
problems = _core.prepared_problems("newton", solver, None, "raise", [], [(2,)], [(2,)])

def gradient(t):
    time.sleep(0.1)  # without the GIL, which the other thread has then
    return _core.sum(solver(t))

with ThreadPoolExecutor(2) as pool:
    print(len(list(pool.map(lambda _: problems.traced(gradient, (2,)), range(2)))))
"""


def test_two_threads_trace_with_the_same_frozen_functions():
    done = subprocess.run([sys.executable, "-c", TWO_TRACE], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
