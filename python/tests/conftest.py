"""What tests share: a generator with a fixed seed, a logistic regression, and how hypothesis draws its examples.

The fast set is the same everywhere: hypothesis derives its examples from the test alone. With ONESTEP_LONG in the environment
it draws more, from the seed that is given by --hypothesis-seed.
"""

from __future__ import annotations

import dataclasses
import os

import hypothesis
import numpy as np
import pytest

hypothesis.settings.register_profile("fast", derandomize=True, max_examples=30, deadline=None, database=None)
hypothesis.settings.register_profile("long", max_examples=500, deadline=None, database=None, print_blob=True)
hypothesis.settings.load_profile("long" if "ONESTEP_LONG" in os.environ else "fast")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(2023)


@dataclasses.dataclass
class Logistic:
    A: np.ndarray
    y: np.ndarray
    w: np.ndarray

    def objective(self, x, w):
        return np.sum(w * np.logaddexp(0, -self.y * (self.A @ x))) + 0.1 * np.sum(x**2)

    def hessian(self, x, w):
        z = 1 / (1 + np.exp(self.y * (self.A @ x)))
        return (self.A.T * (w * z * (1 - z))) @ self.A + 0.2 * np.eye(x.size)

    def jacobian(self, x, w):
        """dx/dw by the implicit function theorem, written by hand."""
        z = 1 / (1 + np.exp(self.y * (self.A @ x)))
        return np.linalg.solve(self.hessian(x, w), (self.A * (self.y * z)[:, None]).T)


@pytest.fixture
def logistic(rng) -> Logistic:
    A = rng.normal(size=(40, 4))
    return Logistic(A, np.where(rng.random(40) < 0.5, -1.0, 1.0), rng.uniform(0.5, 1.5, 40))
