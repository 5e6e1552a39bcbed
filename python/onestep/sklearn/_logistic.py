"""Logistic regression, with two classes or more."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets

from onestep.sklearn._base import LinearEstimator
from onestep.sklearn._fitted import Fitted
from onestep.sklearn._problem import Floats, Indices, Loss, floats, probabilities
from onestep.sklearn._suspects import Suspects, suspects


class LogisticRegression(ClassifierMixin, LinearEstimator):  # type: ignore[misc]
    """Logistic regression whose penalty is found by the derivative of the loss of held-out samples.

    Minimises the sum of w_i times the negative log probability of the label of sample i, plus penalty / 2 times the squares
    of the coefficients: that of `sklearn.linear_model.LogisticRegression(C=1 / penalty)`. With more than two classes the
    probabilities are a softmax, and the coefficients of a feature sum to zero over the classes.

    >>> model = onestep.sklearn.LogisticRegression().fit(X, y)
    >>> model.penalty_, model.coef_, model.coef_se_

    Parameters
    ----------
    penalty : "one" (default), "per-feature", "per-class", a number or an array of one for each feature
        "one": one number is found. "per-feature" and "per-class": one for each feature or class, where samples that the
        search has not seen gain by it by more than two standard errors; else one. With two classes there is one vector of
        coefficients, and "per-class" is "one".
    fit_intercept : bool
        Whether there are intercepts, which are not penalised.
    folds : int
        How many folds judge a penalty. Identical samples share a fold.
    random_state : int, RandomState or None
        Deals the samples into folds.
    tolerance : float
        Of the fit: the length of its last step, relative to the coefficients (of features of unit variance).
    keep_samples : bool
        Whether the estimator keeps its training samples, which standard errors, `influence` and `suspects` are computed from.

    Attributes
    ----------
    classes_
        The labels, sorted.
    coef_, intercept_
        Of the features as they were given: a row for each class, or one for the second of two classes.
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LogisticRegression:
        """Finds the penalty, if it is not given, and fits to all samples.

        >>> LogisticRegression(penalty=1.0).fit(X, y, sample_weight=w)
        """
        X, y = self._validated(X, y)
        check_classification_targets(y)
        w = self._weights(sample_weight, X)
        self.classes_ = np.unique(y[w > 0])
        if len(self.classes_) < 2:
            raise ValueError(
                f"LogisticRegression needs samples of at least 2 classes, but the data have one class: {self.classes_[0]!r}"
            )
        classes = np.searchsorted(self.classes_, y)
        classes = np.minimum(classes, len(self.classes_) - 1)  # labels of samples without weight may be others
        loss: Loss = "logistic" if len(self.classes_) == 2 else "softmax"
        self._fitted = self._fit(loss, X, self._coded(classes), w, classes)
        scaling, x = self._fitted.scaling, self._fitted.x
        of_classes = x[:, None] if x.ndim == 1 else x - x.mean(axis=1, keepdims=True)  # sums are 0 to rounding, or weighted
        self.coef_: Floats = np.ascontiguousarray((of_classes[: X.shape[1]] / scaling.scale[:, None]).T)
        intercept = of_classes[-1] if self.fit_intercept else np.zeros(of_classes.shape[1])
        self.intercept_: Floats = intercept - self.coef_ @ scaling.mean
        return self

    def _coded(self, classes: Indices) -> Floats:
        """Labels as the fit has them."""
        if len(self.classes_) == 2:
            return floats(np.where(classes == 1, 1.0, -1.0))
        return np.eye(len(self.classes_))[classes]

    def _classes_of(self, y: Any) -> Indices:
        """The places of labels among classes_."""
        unknown = sorted(set(np.unique(y).tolist()) - set(self.classes_.tolist()))
        if unknown:
            raise ValueError(f"y has labels that the training samples do not have: {unknown[:5]}; there are {self.classes_.tolist()[:10]}")
        return np.asarray(np.searchsorted(self.classes_, y), dtype=np.intp)

    def _targets(self, y: Any) -> Floats:
        return self._coded(self._classes_of(y))

    def suspects(self, X_val: Any = None, y_val: Any = None, *, penalty: float = 1.0) -> Suspects:
        """Training samples whose label is probably wrong, each judged by fits that its label did not reach by any way (folds
        within folds, 40 fits). Samples whose labels can be trusted, if there are some, join every fit but those without their
        fold, and say whether the model does better without the suspects.

        The fits are not the one of this estimator, whose penalty may have been found with the labels in question: features are
        standardised, and `penalty` is for these.

        >>> found = LogisticRegression().fit(X, y).suspects()
        >>> if found.decided: print(found.order[:10], found.suspects.sum(), found.helps)
        """
        fitted, samples = self._with_samples("suspects")
        strength = np.asarray(penalty, dtype=np.float64)
        if strength.shape != () or not np.isfinite(strength) or not strength > 0:
            raise ValueError(f"penalty={penalty!r}: a number above 0")
        if (X_val is None) != (y_val is None):
            raise ValueError("samples with trusted labels need both X_val and y_val")
        trusted_A, trusted = samples.A[:0], np.zeros(0, dtype=np.intp)
        if X_val is not None:
            judging = self._judging(X_val, y_val)
            trusted_A, trusted = judging.A, _classes_in(judging.y)
        plain = dataclasses.replace(fitted.model, factors=np.ones(fitted.model.features), per_class=False)
        rng = check_random_state(self.random_state)
        of_used = suspects(
            plain, (samples.A, _classes_in(samples.y), samples.w), (trusted_A, trusted), self.classes_, strength, rng
        )
        return of_used if len(fitted.used) == fitted.given else _of_all(of_used, fitted)

    def decision_function(self, X: Any) -> Floats:
        """The logarithm of the odds of the second of two classes, or a score for each class.

        >>> model.decision_function(X) > 0
        """
        outputs = self._validated_samples(X) @ self.coef_.T + self.intercept_
        return floats(outputs[:, 0] if len(self.classes_) == 2 else outputs)

    def predict(self, X: Any) -> Any:
        """The most probable class of each sample.

        >>> model.predict(X)
        """
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)]

    def predict_proba(self, X: Any) -> Floats:
        """The probabilities of the classes, a row for each sample.

        >>> model.predict_proba(X)[:, 1]
        """
        scores = self.decision_function(X)
        return probabilities(np.column_stack([np.zeros(len(scores)), scores]) if scores.ndim == 1 else scores)

    def predict_log_proba(self, X: Any) -> Floats:
        """Their logarithms, also where the probabilities are too small for a number.

        >>> model.predict_log_proba(X)
        """
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.column_stack([np.zeros(len(scores)), scores])
        shifted = scores - scores.max(axis=1, keepdims=True)
        return floats(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def _classes_in(coded: Floats) -> Indices:
    """The places of labels among the classes, from what the fit has."""
    return np.asarray(coded > 0 if coded.ndim == 1 else coded.argmax(axis=1), dtype=np.intp)


def _of_all(found: Suspects, fitted: Fitted) -> Suspects:
    """Samples of weight 0 are no suspects, and last in the order."""
    rest = np.setdiff1d(np.arange(fitted.given), fitted.used)
    quality, right, mask = np.ones(fitted.given), np.ones(fitted.given), np.zeros(fitted.given, dtype=bool)
    quality[fitted.used], right[fitted.used], mask[fitted.used] = found.quality, found.right, found.suspects
    other = np.resize(found.other, fitted.given)
    other[fitted.used] = found.other
    order = np.concatenate([fitted.used[found.order], rest])
    return dataclasses.replace(found, quality=quality, right=right, suspects=mask, other=other, order=order)
