"""Standard errors, and what training samples do to the loss of others, beside what fits without them give."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn", "1.6", reason="scikit-learn is not installed")

from sklearn import datasets
from sklearn.preprocessing import StandardScaler

from onestep.sklearn import LogisticRegression, Ridge


def negative_log_likelihood(coef, X, y):
    return np.logaddexp(0, -(2 * y - 1) * (np.column_stack([X, np.ones(len(X))]) @ coef)).sum()


def problems():
    X, y = datasets.load_breast_cancer(return_X_y=True)
    yield pytest.param(LogisticRegression(penalty=3.0), X[:200, :8], y[:200], X[200:300, :8], y[200:300], id="two classes")
    without = LogisticRegression(penalty=3.0, fit_intercept=False)
    yield pytest.param(without, X[:200, :4], y[:200], X[200:300, :4], y[200:300], id="no intercept")
    X, y = datasets.load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], np.array(["a", "b", "c"])[y[order]]
    yield pytest.param(LogisticRegression(penalty=0.5), X[:100], y[:100], X[100:], y[100:], id="three classes")
    X, y = datasets.load_diabetes(return_X_y=True)
    yield pytest.param(Ridge(penalty=0.01), X[:100], y[:100], X[100:], y[100:], id="ridge")


def mean_loss(model, X, y):
    if isinstance(model, Ridge):
        return 0.5 * np.mean((model.predict(X) - y) ** 2)
    return -model.predict_log_proba(X)[np.arange(len(y)), np.searchsorted(model.classes_, y)].mean()


def test_standard_errors_without_a_penalty_are_those_of_maximum_likelihood(rng):
    X = rng.normal(size=(300, 3)) * [1, 10, 0.1] + [5, 0, -2]
    y = (rng.random(300) < 1 / (1 + np.exp(-(X - X.mean(0)) @ [1, 0.1, -5]))).astype(int)
    model = LogisticRegression(penalty=0).fit(X, y)
    A = np.column_stack([X, np.ones(300)])
    p = model.predict_proba(X)[:, 1]
    covariance = np.linalg.inv(A.T @ (A * (p * (1 - p))[:, None]))
    np.testing.assert_allclose(model.coef_se_, np.sqrt(np.diag(covariance)[None, :3]), rtol=1e-8)
    np.testing.assert_allclose(model.intercept_se_, np.sqrt(covariance[3, 3]), rtol=1e-8)


def test_standard_errors_of_ridge_are_those_of_least_squares(rng):
    X = rng.normal(size=(50, 3)) + 4
    y = X @ [1.0, -2.0, 0.5] + 3 + rng.normal(size=50)
    model = Ridge(penalty=0).fit(X, y)
    A = np.column_stack([X, np.ones(50)])
    variance = np.sum((y - model.predict(X)) ** 2) / 46
    expected = np.sqrt(variance * np.diag(np.linalg.inv(A.T @ A)))
    np.testing.assert_allclose(np.append(model.coef_se_, model.intercept_se_), expected, rtol=1e-8)


def test_standard_errors_cover_the_truth_about_as_often_as_they_should(rng):
    truth = np.array([0.8, -0.5])
    inside = []
    for _ in range(300):
        X = rng.normal(size=(200, 2))
        y = rng.random(200) < 1 / (1 + np.exp(-X @ truth))
        model = LogisticRegression(penalty=0).fit(X, y)
        inside.append(np.abs(model.coef_[0] - truth) < 1.96 * model.coef_se_[0])
    assert 0.92 < np.mean(inside) < 0.98


def test_under_a_penalty_they_are_those_of_the_posterior_which_samples_of_it_show(rng):
    X = rng.normal(size=(60, 2))
    y = (X[:, 0] > rng.normal(size=60)).astype(int)
    penalty = np.array([2.0, 0.5])
    model = LogisticRegression(penalty=penalty).fit(X, y)

    def energy(at):
        return negative_log_likelihood(at, X, y) + 0.5 * np.sum(penalty * at[:2] ** 2)

    here = np.append(model.coef_[0], model.intercept_)
    h = 1e-3

    def second(a, b):
        signs = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
        return sum(s * t * energy(here + h * (s * a + t * b)) for s, t in signs) / (4 * h * h)

    H = np.array([[second(a, b) for b in np.eye(3)] for a in np.eye(3)])
    expected = np.sqrt(np.diag(np.linalg.inv(H)))
    np.testing.assert_allclose(np.append(model.coef_se_, model.intercept_se_), expected, rtol=1e-5)


@pytest.mark.parametrize("penalty", [1.0, "per-class-values"])
def test_standard_errors_of_three_classes_are_of_contrasts_with_their_mean(penalty, rng):
    X, y = datasets.load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X)[:, :2]
    model = LogisticRegression(penalty=1.0, fit_intercept=False).fit(X, y)
    strength = np.full(3, 1.0)
    if penalty != 1.0:  # which a search would have found
        fitted = model._fitted
        strength = np.array([0.2, 1.0, 4.0])
        per_class = type(fitted.model)(**{**vars(fitted.model), "per_class": True})
        x = per_class.fit(fitted.samples, strength).x
        model._fitted = type(fitted)(**{**vars(fitted), "model": per_class, "strength": strength, "x": x})
    x = model._fitted.x
    A, p = model._fitted.samples.A, np.exp(model._fitted.samples.A @ x)
    p /= p.sum(axis=1, keepdims=True)
    H = np.zeros((2, 3, 2, 3))
    for i in range(len(A)):
        H += np.einsum("j,kl,m->jkml", A[i], np.diag(p[i]) - np.outer(p[i], p[i]), A[i])
    H = H.reshape(6, 6) + np.diag(np.tile(strength, 2) * np.repeat(model._fitted.model.factors, 3))
    contrast = np.kron(np.eye(2), np.eye(3) - 1 / 3)
    expected = np.sqrt(np.diag(contrast @ np.linalg.inv(H) @ contrast)).reshape(2, 3).T
    np.testing.assert_allclose(model.coef_se_, expected / model._fitted.scaling.scale, rtol=1e-6)
    np.testing.assert_array_equal(model.intercept_se_, 0)


@pytest.mark.parametrize(("model", "X", "y", "X_val", "y_val"), list(problems()))
def test_the_derivative_by_a_weight_is_that_of_fits_with_other_weights(model, X, y, X_val, y_val):
    effects = model.fit(X, y).influence(X_val, y_val)
    assert effects.loss == pytest.approx(mean_loss(model, X_val, y_val), rel=1e-9)
    h = 1e-4
    for i in (0, 7, 31):
        around = []
        for sign in (1, -1):
            w = np.ones(len(y))
            w[i] += sign * h
            around.append(mean_loss(model.fit(X, y, w), X_val, y_val))
        assert effects.derivative[i] == pytest.approx((around[0] - around[1]) / (2 * h), rel=1e-4, abs=1e-7 * abs(effects.loss))
    assert effects.certificate.bound < 1e-6 * np.linalg.norm(effects.derivative)


@pytest.mark.parametrize(("model", "X", "y", "X_val", "y_val"), list(problems()))
def test_removal_predicts_fits_without_a_sample_far_better_than_the_derivative(model, X, y, X_val, y_val):
    effects = model.fit(X, y).influence(X_val, y_val, verify=10)
    actual = []
    for i in range(0, len(y), 5):
        rest = np.arange(len(y)) != i
        actual.append(mean_loss(model.fit(X[rest], y[rest]), X_val, y_val) - effects.loss)
    actual = np.array(actual)
    predicted, first_order = effects.removal[::5], effects.first_order[::5]
    scale = np.linalg.norm(actual)
    error = np.linalg.norm(predicted - actual) / scale
    assert error < (1e-7 if isinstance(model, Ridge) else 0.2)
    assert error < 0.5 * np.linalg.norm(first_order - actual) / scale
    assert np.corrcoef(predicted, actual)[0, 1] > 0.98
    assert len(effects.verified) == 10
    for again in effects.verified:
        if again.sample % 5 == 0:
            assert again.actual == pytest.approx(actual[again.sample // 5], rel=1e-5, abs=1e-9 * abs(effects.loss))
        assert again.removal == effects.removal[again.sample]
    assert {again.sample for again in effects.verified} == set(np.argsort(-np.abs(effects.removal))[:10])


def test_a_harmful_sample_is_first_and_its_effect_is_certain(rng):
    X = rng.normal(size=(80, 2))
    y = (X[:, 0] + 0.3 * rng.normal(size=80) > 0).astype(int)
    X_val = rng.normal(size=(2000, 2))
    y_val = (X_val[:, 0] + 0.3 * rng.normal(size=2000) > 0).astype(int)
    worst = int(np.argmax(X[:, 0]))
    y[worst] = 0
    effects = LogisticRegression(penalty=1.0).fit(X, y).influence(X_val, y_val)
    assert effects.order[0] == worst
    assert effects.is_certain[worst]
    assert effects.removal[worst] < 0 < effects.derivative[worst]


def test_samples_without_weight_and_repeated_ones_have_their_effects(rng):
    X, y = rng.normal(size=(60, 3)), rng.integers(0, 2, 60)
    w = np.ones(60)
    w[[3, 4]] = 0
    model = LogisticRegression(penalty=1.0).fit(X, y, w)
    effects = model.influence(X[:20], y[:20])
    assert effects.removal.shape == (60,)
    np.testing.assert_array_equal(effects.removal[[3, 4]], 0)
    assert np.isnan(effects.derivative[[3, 4]]).all()
    rest = np.setdiff1d(np.arange(60), [3, 4])
    without = LogisticRegression(penalty=1.0).fit(X[rest], y[rest]).influence(X[:20], y[:20])
    np.testing.assert_allclose(effects.removal[rest], without.removal, rtol=1e-8, atol=1e-14)
    w[9] = 3
    thrice = model.fit(X, y, w).influence(X[:20], y[:20])
    assert thrice.first_order[9] == pytest.approx(-3 * thrice.derivative[9])


def test_the_only_sample_of_a_direction_has_no_removal_without_a_penalty():
    X = np.column_stack([np.arange(8.0), np.eye(8)[5]])
    effects = Ridge(penalty=0.0).fit(X, np.arange(8.0) ** 2).influence(X, np.arange(8.0))
    assert np.isnan(effects.removal[5])
    assert np.isfinite(np.delete(effects.removal, 5)).all()
    assert effects.order[-1] == 5


def test_effects_need_the_training_samples_and_labels_that_are_known(rng):
    X, y = rng.normal(size=(40, 3)), np.repeat([0, 1], 20)
    light = LogisticRegression(penalty=1.0, keep_samples=False).fit(X, y)
    for ask in (lambda: light.coef_se_, lambda: light.influence(X, y)):
        with pytest.raises(ValueError, match="keep_samples=True"):
            ask()
    model = LogisticRegression(penalty=1.0).fit(X, y)
    with pytest.raises(ValueError, match=r"labels that the training samples do not have: \[2\]"):
        model.influence(X, np.full(40, 2))
    with pytest.raises(ValueError, match="features"):
        model.influence(X[:, :2], y)
    with pytest.raises(ValueError, match="not fitted"):
        LogisticRegression().coef_se_


def test_more_coefficients_than_samples_leave_no_variance_of_residuals(rng):
    X, y = rng.normal(size=(5, 8)), rng.normal(size=5)
    with pytest.raises(ValueError, match="degrees of freedom"):
        Ridge(penalty=1e-9).fit(X, y).coef_se_
