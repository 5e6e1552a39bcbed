"""What the estimators share: validation, the search for a penalty, the fit, and what is kept of it."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, is_regressor
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from onestep._models import LinearModel
from onestep.sklearn._file import model_of
from onestep.sklearn._fitted import Fitted
from onestep.sklearn._folds import distinct
from onestep.sklearn._influence import Influence, influence
from onestep.sklearn._problem import Floats, Indices, Loss, Model, Samples, Scaling
from onestep.sklearn._standard_errors import standard_errors
from onestep.sklearn._tuning import Kind, PenaltySearch, tune

KINDS: tuple[Kind, ...] = ("one", "per-feature", "per-class")
LARGEST, SMALLEST = 1e100, 1e-100  # of values whose squares are still numbers


class LinearEstimator(BaseEstimator):  # type: ignore[misc]
    """A linear model with a quadratic penalty. Not for users."""

    penalty: Any
    fit_intercept: bool
    folds: int
    random_state: Any
    tolerance: float
    keep_samples: bool

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fitted")

    def _validated(self, X: Any, y: Any, **options: Any) -> tuple[Floats, Any]:
        refuse_sparse(self, X)
        X, y = validate_data(self, X, y, dtype=np.float64, **options)
        check_size(X, "a feature")
        return X, y

    def _validated_samples(self, X: Any) -> Floats:
        """For predictions."""
        check_is_fitted(self)
        refuse_sparse(self, X)
        return np.asarray(validate_data(self, X, dtype=np.float64, reset=False), dtype=np.float64)

    def _weights(self, sample_weight: Any, X: Floats) -> Floats:
        w = np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64), dtype=np.float64)
        if (w < 0).any():
            raise ValueError("Negative values in data passed to `sample_weight`: weights are at least 0")
        if not (w > 0).any():
            raise ValueError("sample_weight is 0 for all samples: nothing is left to learn from")
        return w

    def _check_options(self) -> None:
        if not isinstance(self.folds, numbers.Integral) or self.folds < 2:
            raise ValueError(f"folds={self.folds!r}: a whole number of at least 2")
        if not isinstance(self.tolerance, numbers.Real) or not 0 < self.tolerance < 1:
            raise ValueError(f"tolerance={self.tolerance!r}: a number between 0 and 1")

    def _given_penalty(self, features: int) -> Floats | None:
        """The penalty as a number or one for each feature; None where it is to be found."""
        penalty = self.penalty
        if isinstance(penalty, str) and penalty in KINDS:
            return None
        wanted = (
            f"'one', 'per-feature' or 'per-class' to have it found, a number, or an array of {features} numbers, one for "
            "each feature"
        )
        if penalty is None or isinstance(penalty, (str, bytes, bool, np.bool_)):
            raise ValueError(f"penalty={penalty!r}: {wanted}" + ("; 0 for none" if penalty in (None, "none") else ""))
        try:
            strength = np.asarray(penalty, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"penalty={penalty!r}: {wanted}") from None
        if strength.shape not in ((), (features,)):
            raise ValueError(f"penalty has the shape {strength.shape}: {wanted}")
        if not np.isfinite(strength).all() or (strength < 0).any():
            raise ValueError("penalty: finite numbers of at least 0")
        return strength

    def _fit(
        self, loss: Loss, X: Floats, target: Floats, w: Floats, classes: Indices | None, scales: tuple[float, float] = (0.0, 1.0)
    ) -> Fitted:
        """`target` as Samples have it; `classes` are those of the samples, None for quantities."""
        self._check_options()
        given = len(w)
        used = np.flatnonzero(w > 0)
        X, target, w = X[used], target[used], w[used]
        strength = self._given_penalty(X.shape[1])
        # Distinct samples in an order of their own: what is found has the same bits for any order, and for repetitions.
        first, w_once = np.arange(len(X)), w
        if strength is None:
            first, w_once = distinct(X, target if classes is None else classes[used].astype(np.float64), w)
        scaling = Scaling.of(X[first], w_once, bool(self.fit_intercept))
        A = scaling.apply(X)
        if self.fit_intercept:
            A = np.column_stack([A, np.ones(len(A))])
        samples = Samples(np.ascontiguousarray(A), target, w)
        once = samples if strength is not None else Samples(samples.A[first], target[first], w_once)
        outputs = target.shape[1] if loss == "softmax" else 1
        model = Model(loss, A.shape[1], outputs, bool(self.fit_intercept), 1 / scaling.scale**2)
        self.search_: PenaltySearch | None = None
        if strength is None:
            of_class = np.zeros(len(first), dtype=np.intp) if classes is None else classes[used][first]
            rng = check_random_state(self.random_state)
            unit = unit_of_penalties(scaling, w_once)
            tuned = tune(model, once, self.penalty, of_class, int(self.folds), rng, unit)
            strength, model, self.search_ = tuned.strength, tuned.model, tuned.search
        fit = model.fit(once, strength, tolerance=float(self.tolerance))
        self.penalty_: Any = float(strength) if strength.ndim == 0 else strength.copy()
        self.n_iter_ = fit.iterations
        kept = samples if self.keep_samples else None
        return Fitted(model, kept, used, given, strength, fit.x, scaling, *scales)

    @property
    def coef_se_(self) -> Floats:
        """Standard errors of `coef_`, of its shape: square roots of the diagonal of the inverse Hessian of what was minimised
        (for Ridge times the variance of the residuals), the penalty included.

        With a penalty they are those of the posterior under the prior that the penalty is: how far the data and the prior leave
        a coefficient open. Without one they are the usual ones of maximum likelihood. They take the model to be true, samples
        to be independent, weights to be numbers of repetitions, and the penalty to be known: that it was found from the same
        samples is not in them. With more than two classes they are of contrasts with the mean of the classes.

        >>> model.coef_ / model.coef_se_
        """
        coef, _ = self._standard_errors()
        return coef if np.ndim(self.coef_) > 1 else coef[0]

    @property
    def intercept_se_(self) -> Any:
        """Standard errors of `intercept_`, as `coef_se_`; 0 without an intercept.

        >>> model.intercept_ / model.intercept_se_
        """
        _, intercept = self._standard_errors()
        return intercept if np.ndim(self.intercept_) > 0 else float(intercept[0])

    def _standard_errors(self) -> tuple[Floats, Floats]:
        return standard_errors(*self._with_samples("a standard error"))

    def influence(self, X_val: Any, y_val: Any, *, verify: int = 0) -> Influence:
        """What each training sample does to the mean loss of these samples: the derivative by its weight, and how the loss is
        predicted to change without it, with the penalty as it is. `verify` fits again without that many of the samples with
        the largest effects, and says what came of it. Only samples that had no part in the fit, nor in choosing it, tell
        which training samples harm predictions for new ones.

        >>> effects = model.influence(X_val, y_val, verify=5)
        >>> effects.order[:10], effects.removal, effects.is_certain.sum(), effects.verified
        """
        fitted, samples = self._with_samples("influence")
        return influence(fitted, samples, self._judging(X_val, y_val), verify)

    def to_model(self) -> LinearModel:
        """What was fitted, as a model that `onestep predict` reads from its file; `from_model` is the way back.

        >>> model.to_model().write("model.json")
        """
        check_is_fitted(self)
        return model_of(self, self._fitted)

    def _judging(self, X: Any, y: Any) -> Samples:
        """Validation samples in the scaling of the fit."""
        refuse_sparse(self, X)
        X, y = validate_data(self, X, y, dtype=np.float64, reset=False, y_numeric=is_regressor(self))
        A = self._fitted.scaling.apply(X)
        if self._fitted.model.intercept:
            A = np.column_stack([A, np.ones(len(A))])
        return Samples(np.ascontiguousarray(A), self._targets(y), np.ones(len(A)))

    def _targets(self, y: Any) -> Floats:
        raise NotImplementedError

    def _with_samples(self, what: str) -> tuple[Fitted, Samples]:
        check_is_fitted(self)
        fitted: Fitted = self._fitted
        if fitted.samples is None:
            raise ValueError(f"{what} needs the training samples: fit with keep_samples=True (a model from a file has none)")
        return fitted, fitted.samples


def unit_of_penalties(scaling: Scaling, w: Floats) -> float:
    """The variance of a typical feature, as a power of ten: the geometric mean, without features in far larger or smaller
    units than most. Penalties mean the same for features in other units, and for weights in other units, too."""
    usual = 6  # orders of magnitude from the median
    sizes = 2 * np.log10(scaling.scale)
    sizes = sizes[np.abs(sizes - np.median(sizes)) <= usual]
    return float(10.0 ** np.round(sizes.mean() + np.log10(w.mean())))


def refuse_sparse(estimator: Any, X: Any) -> None:
    """Sparse matrices are refused by name: nothing here works on them yet."""
    kind = type(X)
    if kind.__module__.split(".")[0] == "scipy" or (hasattr(X, "tocsr") and hasattr(X, "toarray")):
        raise TypeError(
            f"{type(estimator).__name__} of onestep.sklearn does not take sparse data ({kind.__name__}): give X.toarray()"
        )


def check_size(values: Floats, what: str) -> None:
    """Refuses values whose squares overflow or vanish."""
    size = np.abs(values)
    if size.size and (size.max() > LARGEST or (0 < size[size > 0].min(initial=np.inf) and size.max() < SMALLEST and size.max() > 0)):
        raise ValueError(f"{what} has values up to {size.max():.2g}, whose squares are no longer numbers: scale it first")
