"""What each sample does to a logistic regression: all effects by one derivative, compared with fitting again.

The objective is typed as the function of NumPy that it is; onestep traces it.
"""

import numpy as np
from numpy.typing import NDArray

import onestep

Vector = NDArray[np.float64]

rng = np.random.default_rng(0)
A = rng.normal(size=(200, 5))
y = np.sign(A[:, 0] + rng.normal(size=200))
unseen = rng.normal(size=(50, 5))
labels = np.sign(unseen[:, 0] + rng.normal(size=50))


def objective(x: Vector, w: Vector) -> np.float64:
    losses = np.logaddexp(0, -y * (A @ x))
    return np.sum(w * losses) + 0.5 * np.sum(x**2)


def loss(x: Vector) -> float:  # of samples that the fit has not seen
    return float(np.logaddexp(0, -labels * (unseen @ x)).mean())


fit = onestep.newton(objective)
s = fit.solve(np.zeros(5), np.ones(200))
slope = -(labels / (1 + np.exp(labels * (unseen @ s.x)))) @ unseen / 50  # of the loss, by x
effects = s.vjp(slope)  # of the loss, by the weight of each sample
print(s.certificate(slope))

for sample in np.argsort(effects)[[0, -1]]:
    w = np.ones(200)
    w[sample] -= 1e-3
    change = loss(fit.solve(s.x, w).x) - loss(s.x)
    print(f"sample {sample}: by the derivative {-1e-3 * effects[sample]:+.4e}, by fitting again {change:+.4e}")
    assert np.isclose(change, -1e-3 * effects[sample], rtol=0.01)
