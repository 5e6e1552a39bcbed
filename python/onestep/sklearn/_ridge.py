"""Ridge regression."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from onestep.sklearn._base import LinearEstimator, check_size
from onestep.sklearn._problem import Floats


class Ridge(RegressorMixin, LinearEstimator):  # type: ignore[misc]
    """Least squares with a quadratic penalty that is found by the derivative of the loss of held-out samples.

    Minimises the sum of w_i (x_i' coef + intercept - y_i)^2 / 2 plus penalty / 2 times the squares of the coefficients, that
    of `sklearn.linear_model.Ridge(alpha=penalty)`.

    >>> model = onestep.sklearn.Ridge().fit(X, y)
    >>> model.penalty_, model.coef_, model.coef_se_

    Parameters
    ----------
    penalty : "one" (default), "per-feature", a number or an array of one for each feature
        "one": one number is found. "per-feature": one for each feature, where samples that the search has not seen gain by
        it by more than two standard errors; else one.
    fit_intercept : bool
        Whether there is an intercept, which is not penalised.
    folds : int
        How many folds judge a penalty. Identical samples share a fold.
    random_state : int, RandomState or None
        Deals the samples into folds.
    tolerance : float
        Of the fit: the length of its last step, relative to the coefficients (of features of unit variance).
    keep_samples : bool
        Whether the estimator keeps its training samples, which standard errors and `influence` are computed from.

    Attributes
    ----------
    coef_, intercept_
        Of the features as they were given.
    penalty_
        The number, or the array, that the fit was made with.
    search_
        How it was found (`PenaltySearch`); None where it was given.
    """

    def __init__(
        self,
        penalty: Any = "one",
        *,
        fit_intercept: bool = True,
        folds: int = 5,
        random_state: Any = 0,
        tolerance: float = 1e-10,
        keep_samples: bool = True,
    ) -> None:
        self.penalty = penalty
        self.fit_intercept = fit_intercept
        self.folds = folds
        self.random_state = random_state
        self.tolerance = tolerance
        self.keep_samples = keep_samples

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Ridge:
        """Finds the penalty, if it is not given, and fits to all samples.

        >>> Ridge(penalty=1.0).fit(X, y, sample_weight=w)
        """
        X, y = self._validated(X, y, y_numeric=True)
        if isinstance(self.penalty, str) and self.penalty == "per-class":
            raise ValueError("penalty='per-class' is for classes: Ridge takes 'one', 'per-feature', a number or an array")
        w = self._weights(sample_weight, X)
        y = np.asarray(y, dtype=np.float64)
        check_size(y, "y")
        # The target, too, is centred and scaled inside.
        share = w / w.sum()
        mean = float(share @ y) if self.fit_intercept else 0.0
        scale = float(np.sqrt(share @ (y - mean) ** 2))
        if not scale > 1e-14 * max(abs(mean), float(np.abs(y).max())):
            scale = max(abs(mean), 1.0)
        self._fitted = self._fit("ridge", X, (y - mean) / scale, w, None, (mean, scale))
        scaling = self._fitted.scaling
        x = self._fitted.x * scale
        self.coef_: Floats = x[: X.shape[1]] / scaling.scale
        self.intercept_ = float(mean + x[-1] - scaling.mean @ self.coef_) if self.fit_intercept else 0.0
        return self

    def _targets(self, y: Any) -> Floats:
        return (np.asarray(y, dtype=np.float64) - self._fitted.target_mean) / self._fitted.target_scale

    def predict(self, X: Any) -> Floats:
        """Of each sample.

        >>> model.predict(X)
        """
        return self._validated_samples(X) @ self.coef_ + self.intercept_
