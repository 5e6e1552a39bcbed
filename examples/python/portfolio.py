"""How a portfolio moves with what is expected of it: a quadratic program, its multipliers and its Jacobian."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import onestep

Vector = NDArray[np.float64]

rng = np.random.default_rng(3)
factors = rng.normal(size=(6, 3))
covariance = factors @ factors.T / 50 + np.diag(rng.uniform(0.01, 0.04, size=6))


def portfolio(expected: Vector, aversion: float) -> dict[str, Any]:
    """Shares x >= 0 of the budget for which the mean return less aversion/2 times the variance is largest."""
    return {"Q": aversion * covariance, "q": -expected, "A": np.ones((1, 6)), "b": np.ones(1), "lo": 0.0}


expected = np.array([0.08, 0.05, 0.11, 0.03, 0.07, 0.06])
s = onestep.quadratic_program(portfolio).solve(expected, 4.0)
by_return, by_aversion = (J[:6] for J in s.jacobian())  # further rows are of the multipliers
print("shares", s.x.round(4))
print("their derivatives by the returns", by_return.round(2), sep="\n")
print("and by the aversion", by_aversion.ravel().round(4))
print("how wrong the row of the first share can be:", s.certificate(np.eye(6)[0]))

# Shares that are zero stay zero, and the budget stays spent.
held = s.x > 1e-9
assert np.allclose(by_return[~held], 0) and np.allclose(by_return.sum(axis=0), 0, atol=1e-9)
