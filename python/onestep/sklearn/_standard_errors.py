"""Standard errors of coefficients, from the curvature of what was minimised."""

from __future__ import annotations

import numpy as np

from onestep.sklearn._fitted import Fitted
from onestep.sklearn._problem import Floats, Model, Samples, floats

MOST_UNKNOWNS = 3000


def standard_errors(fitted: Fitted, samples: Samples) -> tuple[Floats, Floats]:
    """Of the coefficients, a row for each output, and of the intercepts."""
    model = fitted.model
    m, K, n = model.columns, model.classes, model.features
    if m * K > MOST_UNKNOWNS:
        raise ValueError(f"{m * K} coefficients have no standard errors: at most {MOST_UNKNOWNS}")
    C = inverse_of(model.hessian(samples, fitted.strength, fitted.x, held=False))
    covariance = C.reshape(m, K, m, K) * _variance(fitted, samples, C)
    if model.loss == "softmax":  # of contrasts with the mean of the classes: only these change predictions
        covariance = covariance - covariance.mean(axis=1, keepdims=True)
        covariance = covariance - covariance.mean(axis=3, keepdims=True)
    each = np.einsum("ikjk->kij", covariance)  # by output
    variance = np.einsum("kii->ki", each)
    coef = np.sqrt(variance[:, :n]) / fitted.scaling.scale
    if not model.intercept:
        return floats(coef), np.zeros(K)
    # The intercept of the features as they were is that of the scaled ones less t' coefficients.
    t = fitted.scaling.mean / fitted.scaling.scale
    of_intercept = each[:, n, n] - 2 * each[:, n, :n] @ t + np.einsum("kij,i,j->k", each[:, :n, :n], t, t)
    return floats(coef), np.sqrt(of_intercept)


def _variance(fitted: Fitted, samples: Samples, C: Floats) -> float:
    """Of the residuals of ridge: their squares over the degrees of freedom that the penalty leaves. Weights are counts."""
    model: Model = fitted.model
    if model.loss != "ridge":
        return 1.0
    used = model.columns - float(np.sum(model.penalties(fitted.strength) * np.diag(C)))
    count = float(samples.w.sum())
    if not count - used > 1e-6 * count:
        raise ValueError(
            f"no degrees of freedom are left to estimate the variance of residuals from: {count:g} samples, "
            f"{used:.3g} effective coefficients; give a larger penalty"
        )
    squares = float(samples.w @ (2 * model.loss_values(samples, fitted.x)))
    return squares / (count - used) * fitted.target_scale**2


def inverse_of(H: Floats) -> Floats:
    """Of a positive definite matrix, scaled to a diagonal of ones before. Raises ValueError where it is singular."""
    scale = np.sqrt(np.diag(H))
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        raise ValueError("the Hessian is singular: a feature without a penalty changes no loss; give a penalty above 0")
    try:
        factor = np.linalg.inv(np.linalg.cholesky(H / np.outer(scale, scale)))
    except np.linalg.LinAlgError:
        raise ValueError(
            "the Hessian is singular to rounding: features are linearly dependent, or the classes linearly separable; give a "
            "larger penalty"
        ) from None
    return floats(factor.T @ factor / np.outer(scale, scale))
