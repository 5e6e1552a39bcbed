"""The fits behind the estimators: a linear model with logistic, squared or softmax loss and a quadratic penalty.

Features are centred and scaled inside, and the penalty is scaled back: the problem is that of the features as they were
given, but the unit of a feature does not matter to whether and how fast it is solved.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import onestep

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Loss = Literal["logistic", "softmax", "ridge"]

MOST_UNKNOWNS_OF_DENSE_NEWTON = 3000


def floats(values: Any) -> Floats:
    """As an array of doubles, which they are: for the type checker."""
    return np.asarray(values, dtype=np.float64)


@dataclasses.dataclass(frozen=True)
class Scaling:
    """Column j of the scaled features is (x_j - mean_j) / scale_j."""

    mean: Floats
    scale: Floats

    @staticmethod
    def of(X: Floats, w: Floats, centred: bool) -> Scaling:
        weights = w / w.sum()
        mean = weights @ X if centred else np.zeros(X.shape[1])
        scale = np.sqrt(weights @ (X - mean) ** 2)
        # A column that is constant to rounding is left as large as it is: its coefficient is then made by the penalty.
        size = np.abs(X).max(axis=0, initial=0.0)
        scale = np.where(scale > 1e-12 * size, scale, np.where(size > 0, size, 1.0))
        return Scaling(mean, np.maximum(scale, 1e-150))

    def apply(self, X: Floats) -> Floats:
        return (X - self.mean) / self.scale


@dataclasses.dataclass(frozen=True)
class Samples:
    """Scaled features with a column of ones behind them where there is an intercept, targets and weights."""

    A: Floats  # (N, m)
    y: Floats  # (N): signs of logistic, targets of ridge; (N, K) of softmax, with a single 1 in each row
    w: Floats  # (N)

    def some(self, which: Indices) -> Samples:
        return Samples(self.A[which], self.y[which], self.w[which])


class FitFailed(onestep.Error, ValueError):
    """A fit did not end at a solution."""


@dataclasses.dataclass(frozen=True)
class Model:
    """What is minimised: sum of w_i loss_i(x) + penalty(x), x of shape (m,), or (m, K) for softmax."""

    loss: Loss
    columns: int  # m, that of the ones included
    classes: int  # K of softmax, else 1
    intercept: bool
    factors: Floats  # of the penalty of each scaled feature
    per_class: bool = False  # whether the penalty is a vector of one for each class

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.columns, self.classes) if self.loss == "softmax" else (self.columns,)

    @property
    def features(self) -> int:
        return self.columns - self.intercept

    @property
    def start(self) -> Floats:
        return np.zeros(self.shape)

    def losses(self, samples: Samples, x: Any, by_margins: bool = False) -> Any:
        """The loss of each sample, for a traced x."""
        prediction = samples.A @ x
        if self.loss == "logistic":
            return np.logaddexp(0.0, -samples.y * prediction)
        if self.loss == "ridge":
            return 0.5 * np.square(prediction - samples.y)
        if not by_margins:
            return onestep.log_sum_exp(prediction, 1) - np.sum(samples.y * prediction, axis=1)
        # By the margins of the other classes: log(1 + sum of exp(s_k - s_label)) does not cancel where labels are nearly
        # certain. The label's own margin, which is 0, is taken out of the sum.
        far = 1e300
        own = np.reshape(np.sum(samples.y * prediction, axis=1), (samples.A.shape[0], 1))
        return np.logaddexp(0.0, onestep.log_sum_exp(prediction - own - far * samples.y, 1))

    def loss_values(self, samples: Samples, x: Floats) -> Floats:
        """The loss of each sample at given coefficients."""
        return self.loss_of_outputs(samples.A @ x, samples.y)

    def loss_of_outputs(self, outputs: Floats, y: Floats) -> Floats:
        """Of each sample. Targets are those of Samples; outputs may have axes of their own before those of the targets."""
        if self.loss == "logistic":
            return floats(np.logaddexp(0.0, -y * outputs))
        if self.loss == "ridge":
            return floats(0.5 * np.square(outputs - y))
        others = outputs - np.sum(y * outputs, axis=-1, keepdims=True)
        others = np.where(y > 0, -np.inf, others)
        largest = np.maximum(others.max(axis=-1), -1e300)  # not minus infinity, which less itself would be NaN
        rest = largest + np.log(np.sum(np.exp(others - largest[..., None]), axis=-1))
        return floats(np.logaddexp(0.0, rest))

    def penalty(self, x: Any, strength: Any) -> Any:
        """Of a traced x. The strength is a number, or one for each feature, or (per_class) one for each class."""
        body = x[: self.features]
        if self.loss != "softmax":
            return 0.5 * np.sum(strength * self.factors * np.square(body))
        # Coefficients that move together in all classes change no prediction. Where the penalty puts their (weighted) sum at
        # zero, holding it there moves no solution, and conditions the fit where the penalty is weak.
        if self.per_class:
            of_classes = np.sum(self.factors[:, None] * np.square(body), axis=0)
            together = np.sum(body * (strength / np.mean(strength)), axis=1)
            value = np.sum(strength * of_classes) + np.sum(np.square(together))
        else:
            value = np.sum(strength * self.factors * np.sum(np.square(body), axis=1)) + np.sum(np.square(np.sum(body, axis=1)))
        if self.intercept:
            value = value + np.square(np.sum(x[self.features]))
        return 0.5 * value

    def penalties(self, strength: Floats) -> Floats:
        """Of each unknown, of the shape of x: what it adds to the diagonal of the Hessian."""
        each = np.zeros(self.shape)
        if self.loss == "softmax":
            of_feature = np.asarray(strength) if self.per_class else np.reshape(strength, (-1, 1))
            each[: self.features] = of_feature * self.factors[:, None]
        else:
            each[: self.features] = strength * self.factors
        return each

    def solver(self, samples: Samples, tolerance: float, by_margins: bool = False) -> onestep.Solver:
        """Of the fit to samples, with the strength of the penalty as its parameter."""

        def objective(x: Any, strength: Any) -> Any:
            return np.sum(samples.w * self.losses(samples, x, by_margins)) + self.penalty(x, strength)

        return self._newton(objective, tolerance)

    def weighted_solver(self, samples: Samples, strength: Floats, tolerance: float) -> onestep.Solver:
        """Of the same fit with the weights of the samples as its parameter."""

        def objective(x: Any, w: Any) -> Any:
            return np.sum(w * self.losses(samples, x)) + self.penalty(x, strength)

        return self._newton(objective, tolerance)

    def _newton(self, objective: Any, tolerance: float) -> onestep.Solver:
        # The Hessian of softmax is several times as expensive to form as the products that it takes to solve with it.
        if self.loss == "softmax" or self.columns > MOST_UNKNOWNS_OF_DENSE_NEWTON:
            return onestep.newton_cg(objective, tolerance=tolerance)
        return onestep.newton(objective, tolerance=tolerance)

    def fit(self, samples: Samples, strength: Floats, start: Floats | None = None, tolerance: float = 1e-10) -> Fit:
        """Raises FitFailed where there is no solution."""
        x0 = self.start if start is None else start
        solution = self.solver(samples, tolerance).solve(x0, strength)
        if not solution.status.is_solution and self.loss == "softmax":
            solution = self.solver(samples, tolerance, by_margins=True).solve(solution.x, strength)
        if not solution.status.is_solution and not self._is_at_rounding(samples, strength, solution.x):
            raise FitFailed(self._why_failed(solution, strength))
        if np.max(strength) == 0 and not self._is_unique(samples, strength, solution.x):
            raise FitFailed(self._why_failed(solution, strength))
        return Fit(solution.x, solution.statistics.iterations)

    def _is_unique(self, samples: Samples, strength: Floats, x: Floats) -> bool:
        """Whether a fit without a penalty is one. A sum of losses below log 2 has no loss above it: every sample is on its side
        of a plane, which can be made as steep as one likes. With samples on the plane the curvature across it vanishes."""
        if self.loss != "ridge" and self.loss_values(samples, x).sum() < np.log(2):
            return False
        if x.size > MOST_UNKNOWNS_OF_DENSE_NEWTON:
            return True
        curvatures = np.linalg.eigvalsh(self.hessian(samples, strength, x))
        return bool(curvatures[0] > 1e-12 * curvatures[-1])

    def _is_at_rounding(self, samples: Samples, strength: Floats, x: Floats) -> bool:
        """Whether what is left to gain is below what a sum of losses can show."""
        if not np.isfinite(x).all() or x.size > MOST_UNKNOWNS_OF_DENSE_NEWTON:
            return False
        objective = float(samples.w @ self.loss_values(samples, x)) + 0.5 * float(np.sum(self.penalties(strength) * x**2))
        gradient = self.gradient(samples, strength, x).ravel()
        try:
            decrement = gradient @ np.linalg.solve(self.hessian(samples, strength, x), gradient)
        except np.linalg.LinAlgError:
            return False
        return bool(0 <= decrement <= 1e-12 * max(1.0, abs(objective)))

    def _why_failed(self, solution: onestep.Solution, strength: Floats) -> str:
        why = f"the fit ended with the status {solution.status.name} after {solution.statistics.iterations} iterations"
        if np.min(strength) > 0:
            return f"{why}: {solution.message}"
        if self.loss == "ridge":
            return f"{why}: without a penalty linearly dependent or constant features have no unique fit; give a penalty above 0"
        return (
            f"{why}: without a penalty there is no best fit where the classes are linearly separable, and no unique one "
            "where features are constant or linearly dependent; give a penalty above 0"
        )

    def output_derivatives(self, samples: Samples, x: Floats) -> tuple[Floats, Floats]:
        """First and second derivatives of each loss by the outputs of the model: (N, K) and (N, K, K)."""
        prediction = samples.A @ x
        if self.loss == "ridge":
            return (prediction - samples.y)[:, None], np.ones((len(samples.w), 1, 1))
        if self.loss == "logistic":
            wrong = 1 / (1 + np.exp(np.minimum(samples.y * prediction, 700.0)))
            return (-samples.y * wrong)[:, None], (wrong * (1 - wrong))[:, None, None]
        p = probabilities(prediction)
        return floats(p - samples.y), floats(p[:, :, None] * np.eye(self.classes) - p[:, :, None] * p[:, None, :])

    def gradient(self, samples: Samples, strength: Floats, x: Floats) -> Floats:
        """Of the objective, of the shape of x; without what holds sums of classes, which vanish at a solution."""
        first, _ = self.output_derivatives(samples, x)
        of_losses = samples.A.T @ (samples.w[:, None] * first)
        return floats(of_losses.reshape(self.shape) + self.penalties(strength) * x)

    def hessian(self, samples: Samples, strength: Floats, x: Floats, held: bool = True) -> Floats:
        """Of the objective, a row for each unknown in the order of x.ravel(). Where the penalties of classes differ, `held` says
        whether what holds sums of classes is in it."""
        _, second = self.output_derivatives(samples, x)
        m, K = self.columns, second.shape[1]
        H = np.empty((m, K, m, K))
        for k in range(K):
            for l in range(k + 1):
                block = samples.A.T @ ((samples.w * second[:, k, l])[:, None] * samples.A)
                H[:, k, :, l] = block
                H[:, l, :, k] = block
        flat = H.reshape(m * K, m * K)
        flat[np.diag_indices(m * K)] += self.penalties(strength).ravel()
        if self.loss == "softmax":
            direction = np.ones((m, K))
            if self.per_class:
                direction[: self.features] = strength / np.mean(strength) if held else 0.0
            for j in range(m):
                H[j, :, j, :] += np.outer(direction[j], direction[j])
        return floats(flat)


@dataclasses.dataclass(frozen=True)
class Fit:
    """What a fit ended with."""

    x: Floats
    iterations: int


def probabilities(outputs: Floats) -> Floats:
    """Of the classes, a row for each sample: softmax of the outputs."""
    shifted = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return floats(shifted / shifted.sum(axis=1, keepdims=True))
