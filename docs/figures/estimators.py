"""Draws docs/figures/estimators.svg: what each estimator differentiates, and how wrong its gradient is after k steps.

    python docs/figures/estimators.py docs/figures/estimators.svg
"""

import sys

import numpy as np
import onestep

# [problem]
rng = np.random.default_rng(4)
A = rng.normal(size=(60, 5)) * [1.0, 0.9, 0.8, 0.7, 0.6]
y = np.sign(A[:, 0] + 0.5 * rng.normal(size=60))
w, start = np.ones(60), np.zeros(5)


def f(x, w):
    return np.sum(w * np.logaddexp(0, -y * (A @ x))) + np.sum(x**2)


x = onestep.newton(f).solve(start, w).x
exact = onestep.newton(f).solve(x, w, estimator=onestep.Implicit(tolerance=1e-14)).vjp(x)  # of ‖x(w)‖²/2
ESTIMATORS = {"unrolled": onestep.Unrolled(), "implicit": onestep.Implicit(), "one step": onestep.OneStep()}


def errors(solver, steps):
    """Relative errors of the gradient when the solver is stopped after so many steps."""
    found = {name: [] for name in ESTIMATORS}
    for k in steps:
        stopped = solver.with_options(tolerance=0, max_iterations=k)
        for name, estimator in ESTIMATORS.items():
            s = stopped.solve(start, w, estimator=estimator).even_if_unconverged()
            found[name].append(np.linalg.norm(s.vjp(x) - exact) / np.linalg.norm(exact))
    return found


panels = [
    ("Newton's method", np.arange(1, 8), onestep.newton(f)),
    ("gradient descent", np.arange(1, 41), onestep.gradient_descent(f, step=onestep.GradientStep.optimal())),
]
panels = [(title, steps, errors(solver, steps)) for title, steps, solver in panels]
# [drawing]
DECADES = 10  # what is below is near rounding, and differs from machine to machine
COLOURS = {"unrolled": "#d98200", "implicit": "#0a9a6c", "one step": "#2f8fd0"}
SAYS = {
    "unrolled": "all k steps",
    "implicit": "the equation at the end",
    "one step": "the last step",
}
parts = []


def text(at_x, at_y, words, anchor="start", size=13, colour="currentColor"):
    parts.append(f'<text x="{at_x:.1f}" y="{at_y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">{words}</text>')


def line(x0, y0, x1, y1, colour="currentColor", width=1.0, more=""):
    parts.append(
        f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="{colour}" stroke-width="{width}" {more}/>'
    )


def draw_scheme():
    """A chain of iterates for each estimator, with what it differentiates in its colour."""
    places = [150 + 62 * i for i in range(7)]
    names = ["x₀", "x₁", "x₂", "…", "xₖ₋₂", "xₖ₋₁", "xₖ"]
    for place, name in zip(places, names):
        text(place, 22, name, "middle")
    for row, (estimator, colour) in enumerate(COLOURS.items()):
        height = 48 + 34 * row
        text(20, height + 4, estimator, colour=colour)
        text(560, height + 4, SAYS[estimator])
        for i in range(6):
            used = estimator == "unrolled" or (estimator == "one step" and i == 5)
            faint = "" if used else 'stroke-opacity="0.3"'
            line(places[i] + 9, height, places[i + 1] - 9, height, colour if used else "currentColor", 4 if used else 1.5, faint)
        for i, place in enumerate(places):
            filled = estimator == "implicit" and i == 6
            parts.append(
                f'<circle cx="{place}" cy="{height}" r="{7 if filled else 4}" fill="{colour if filled else "currentColor"}" '
                f'fill-opacity="{1 if filled else 0.5}"/>'
            )


def draw_panel(left, title, steps, found):
    """Errors against the number of steps, on a logarithmic scale."""
    top, bottom, right = 205, 430, left + 300
    across = lambda k: left + (right - left) * (k - steps[0]) / (steps[-1] - steps[0])
    down = lambda e: top + (bottom - top) * min(max(-np.log10(e), 0), DECADES) / DECADES
    text(left, top - 32, title, size=14)
    text(left, top - 14, "relative error of the gradient", size=11)
    for power in range(0, DECADES + 1, 2):
        line(left, down(10.0**-power), right, down(10.0**-power), more='stroke-opacity="0.2"')
        label = "1" if power == 0 else f'10<tspan dy="-5" font-size="9">−{power}</tspan>'
        text(left - 8, down(10.0**-power) + 4, label, "end", 12)
    ticks = steps if len(steps) < 12 else [1, *range(10, steps[-1] + 1, 10)]
    for k in ticks:
        text(across(k), bottom + 18, str(k), "middle", 12)
    text(right, bottom + 36, "steps k", "end", 12)
    for (name, colour), wide, dash in zip(COLOURS.items(), (5, 2.5, 2.5), ("", "", "6 4")):
        points = " ".join(f"{across(k):.1f},{down(e):.3f}" for k, e in zip(steps, found[name]))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{wide}" stroke-dasharray="{dash}"/>')


draw_scheme()
for left, panel in zip((55, 440), panels):
    draw_panel(left, *panel)
about = "Above: unrolling differentiates all steps, implicit differentiation the equation at the last iterate, one step the last \
step. Below: errors of the gradient against the number of steps, for Newton's method and for gradient descent"
with open(sys.argv[1], "w", encoding="utf-8") as out:
    out.write(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 475" width="760" role="img" font-family="sans-serif">\n'
        f"<title>{about}</title>\n" + "\n".join(parts) + "\n</svg>\n"
    )
