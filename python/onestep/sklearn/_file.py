"""Estimators and the model files of the command: what the one has fitted, the other predicts with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from onestep._errors import MisuseError
from onestep._models import LinearModel
from onestep.sklearn._fitted import Fitted
from onestep.sklearn._problem import Floats, Indices, Model, Scaling

if TYPE_CHECKING:
    from onestep.sklearn._logistic import LogisticRegression
    from onestep.sklearn._ridge import Ridge


def model_of(estimator: Any, fitted: Fitted) -> LinearModel:
    """Of the features as they were given."""
    classes = getattr(estimator, "classes_", None)
    coefficients, intercept = np.asarray(estimator.coef_).T, estimator.intercept_
    if fitted.model.loss == "logistic":
        coefficients, intercept = coefficients[:, 0], np.asarray(intercept)[0]
    of_numbers = classes is not None and classes.dtype.kind in "iuf"
    labels = np.empty(0) if classes is None else classes if of_numbers else np.arange(len(classes))
    penalties = np.atleast_1d(estimator.penalty_)
    return LinearModel(
        fitted.model.loss,
        coefficients,
        intercept,
        np.asarray(labels, dtype=np.float64),
        [] if classes is None or of_numbers else [str(name) for name in classes],
        features=[str(name) for name in getattr(estimator, "feature_names_in_", [])],
        l2=0.0 if (penalties == 0).any() else float(np.exp(np.mean(np.log(penalties)))),
        samples=max(len(fitted.used), 1),
        command=f"onestep.sklearn.{type(estimator).__name__}",
    )


def from_model(model: LinearModel) -> LogisticRegression | Ridge:
    """An estimator, already fitted, of a model that the command has written, or an estimator by `to_model`. It has no
    training samples, and so no standard errors and influences.

    >>> estimator = onestep.sklearn.from_model(onestep.read_model("model.json"))
    >>> estimator.predict(X)
    """
    from onestep.sklearn._logistic import LogisticRegression
    from onestep.sklearn._ridge import Ridge

    if not isinstance(model, LinearModel):
        raise MisuseError(f"[from_model] a LinearModel is needed, as onestep.read_model returns it, not {model!r}")
    n = len(model.coefficients)
    scaling = Scaling(
        np.zeros(n) if model.mean is None else model.mean.copy(),
        np.ones(n) if model.scale is None else model.scale.copy(),
    )
    coefficients, intercept = np.asarray(model.coefficients), np.asarray(model.intercept)
    strength = _penalty_of(model, scaling)
    penalty: Any = float(strength) if strength.ndim == 0 else strength.copy()
    made: Any = Ridge(penalty) if model.loss == "ridge" else LogisticRegression(penalty)
    if model.loss != "ridge":
        made.classes_, order = _classes_of(model)
        if model.loss == "softmax":
            coefficients, intercept = coefficients[:, order], intercept[order]
        elif order[0] == 1:
            coefficients, intercept = -coefficients, -intercept
    x = np.concatenate([coefficients, intercept[None]])
    outputs = len(made.classes_) if model.loss == "softmax" else 1
    of_features = Model(model.loss, n + 1, outputs, True, 1 / scaling.scale**2)  # type: ignore[arg-type]
    made._fitted = Fitted(of_features, None, np.zeros(0, np.intp), model.samples, strength, x, scaling)
    raw = x[:-1] / (scaling.scale[:, None] if x.ndim > 1 else scaling.scale)
    made.coef_ = np.ascontiguousarray(
        raw.T if model.loss == "softmax" else raw[None] if model.loss == "logistic" else raw
    )
    shift = np.atleast_1d(x[-1] - scaling.mean @ raw)
    made.intercept_ = float(shift[0]) if model.loss == "ridge" else shift
    made.penalty_, made.search_, made.n_iter_, made.n_features_in_ = penalty, None, 0, n
    if model.header or model.encoding or model.command.startswith("onestep.sklearn"):
        if model.features != [str(j + 1) for j in range(n)]:
            made.feature_names_in_ = np.array(model.features, dtype=object)
    return made  # type: ignore[no-any-return]


def _penalty_of(model: LinearModel, scaling: Scaling) -> Floats:
    """Of the features as they were given; one number where there is no scaling and none for each feature."""
    tuned = model.hyperparameters
    if tuned.get("hyper") == "l2-per-feature" and np.size(tuned.get("values", ())) == len(model.coefficients):
        return np.asarray(np.asarray(tuned["values"], dtype=np.float64) * scaling.scale**2)
    return np.asarray(model.l2 if model.scale is None else model.l2 * scaling.scale**2, dtype=np.float64)


def _classes_of(model: LinearModel) -> tuple[Any, Indices]:
    """The labels in ascending order, whole numbers as such; and where each of them stands in the model."""
    if model.label_names:
        labels: Any = np.array(model.label_names)
    else:
        labels = model.labels.astype(np.int64) if np.all(model.labels == np.rint(model.labels)) else model.labels.copy()
    order = np.argsort(labels, kind="stable")
    return labels[order], order
