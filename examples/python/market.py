"""An equilibrium of firms whose best responses are plain Python with branches: a step with derivatives of one's own.

Firm i offers max(0, (a - cᵢ - what the others offer) / 2); nobody moves at the equilibrium. Damped, the step contracts.
"""

import numpy as np
from numpy.typing import NDArray

import onestep

Vector = NDArray[np.float64]

DAMPING = 0.4


def respond(x: Vector, theta: Vector) -> Vector:
    """One damped best response; theta is the size a of the market and the costs."""
    best = [max(0.0, (theta[0] - cost - (x.sum() - x[i])) / 2) for i, cost in enumerate(theta[1:])]
    return (1 - DAMPING) * x + DAMPING * np.array(best)


def matrices(x: Vector, theta: Vector) -> tuple[Vector, Vector]:
    """The derivatives of the step by x and by theta."""
    n = len(x)
    offers = ((theta[0] - theta[1:] - (x.sum() - x)) > 0).astype(float)[:, None]
    by_x = (1 - DAMPING) * np.eye(n) - DAMPING / 2 * offers * (1 - np.eye(n))
    by_theta = DAMPING / 2 * offers * np.hstack([np.ones((n, 1)), -np.eye(n)])
    return by_x, by_theta


Parameters = tuple[Vector, ...]


def jvp(x: Vector, theta: Parameters, dx: Vector | None, dtheta: Parameters | None) -> Vector:
    by_x, by_theta = matrices(x, theta[0])
    out = np.zeros_like(x)
    if dx is not None:  # None stands for zero
        out += by_x @ dx
    if dtheta is not None:
        out += by_theta @ dtheta[0]
    return out


def vjp(x: Vector, theta: Parameters, c: Vector) -> tuple[Vector, Parameters]:
    by_x, by_theta = matrices(x, theta[0])
    return by_x.T @ c, (by_theta.T @ c,)


step = onestep.ForeignStep(respond, jvp, vjp)
theta = np.array([10.0, 1.0, 2.0, 9.5])  # the third firm is too expensive to offer anything
s = onestep.fixed_point(step, estimator=onestep.Implicit()).solve(np.ones(3), theta)
print("offers", s.x.round(6))
print("of the total, by the market's size and the costs:", s.vjp(np.ones(3)).round(6))

# Of two firms that offer: (a - 2 c₁ + c₂) / 3.
assert np.allclose(s.x, [10 / 3, 7 / 3, 0.0])
assert np.allclose(s.vjp(np.ones(3)), [2 / 3, -1 / 3, -1 / 3, 0.0])
