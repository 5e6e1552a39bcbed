"""The estimators of onestep.sklearn: scikit-learn's own checks, and answers beside its estimators."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("sklearn", "1.6", reason="scikit-learn is not installed")

from sklearn import datasets, linear_model
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from onestep.sklearn import LogisticRegression, Ridge

ALL = [
    LogisticRegression(),
    LogisticRegression(penalty=1.0),
    LogisticRegression(penalty="per-feature", folds=3),
    LogisticRegression(penalty="per-class", folds=3, fit_intercept=False),
    LogisticRegression(penalty=0.1, keep_samples=False),
    Ridge(),
    Ridge(penalty=1.0),
    Ridge(penalty="per-feature", folds=3),
    Ridge(penalty=2.0, fit_intercept=False),
]


@parametrize_with_checks(ALL)  # without exceptions
def test_scikit_learns_checks_pass(estimator, check):
    check(estimator)


def two_classes():
    X, y = datasets.load_breast_cancer(return_X_y=True)
    return X, y


def three_classes():
    return datasets.load_wine(return_X_y=True)


@pytest.mark.parametrize("load", [two_classes, three_classes])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_given_penalty_gives_the_coefficients_of_scikit_learn(load, intercept, rng):
    X, y = load()
    X = StandardScaler().fit_transform(X)
    w = rng.uniform(0.5, 2, len(X))
    ours = LogisticRegression(penalty=0.7, fit_intercept=intercept).fit(X, y, w)
    theirs = linear_model.LogisticRegression(C=1 / 0.7, fit_intercept=intercept, tol=1e-10, max_iter=10000).fit(X, y, w)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.intercept_ - ours.intercept_.mean(), theirs.intercept_ - theirs.intercept_.mean(), atol=1e-5)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(np.exp(ours.predict_log_proba(X)), ours.predict_proba(X), atol=1e-15)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    if load is three_classes:
        np.testing.assert_allclose(ours.coef_.sum(axis=0), 0, atol=1e-9)


@pytest.mark.parametrize("intercept", [True, False])
def test_ridge_is_that_of_scikit_learn(intercept, rng):
    X, y = datasets.load_diabetes(return_X_y=True)
    w = rng.uniform(0.5, 2, len(X))
    ours = Ridge(penalty=0.01, fit_intercept=intercept).fit(X, y, w)
    theirs = linear_model.Ridge(alpha=0.01, fit_intercept=intercept, solver="cholesky").fit(X, y, w)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-8)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-8)


def test_a_penalty_for_each_feature_is_a_change_of_units(rng):
    X, y = two_classes()
    X = StandardScaler().fit_transform(X)
    penalty = rng.uniform(0.1, 10, X.shape[1])
    ours = LogisticRegression(penalty=penalty).fit(X, y)
    same = LogisticRegression(penalty=1.0).fit(X / np.sqrt(penalty), y)
    np.testing.assert_allclose(ours.coef_, same.coef_ / np.sqrt(penalty), rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-60, 1e-8, 1e8, 1e60])
def test_units_of_features_and_targets_do_not_matter_to_whether_a_fit_is_found(scale):
    X, y = datasets.load_diabetes(return_X_y=True)
    base = Ridge().fit(X, y)
    other = Ridge().fit(scale * X, y / scale)
    np.testing.assert_allclose(other.predict(scale * X) * scale, base.predict(X), rtol=1e-4)
    X, y = three_classes()
    base, other = LogisticRegression().fit(X, y), LogisticRegression().fit(scale * X, y)
    np.testing.assert_allclose(other.predict_proba(scale * X), base.predict_proba(X), atol=1e-3)


@pytest.mark.parametrize("make", [LogisticRegression, Ridge])
def test_weights_are_repetitions_and_the_order_of_samples_does_not_matter(make, rng):
    X, y = two_classes()
    X, y = X[:120, :6], y[:120]
    times = rng.integers(0, 4, len(X))
    times[:2] = 1
    repeated = make().fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    weighted = make().fit(X, y, times.astype(float))
    order = rng.permutation(len(X))
    shuffled = make().fit(X[order], y[order], times[order])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-5)
    np.testing.assert_allclose(weighted.penalty_, repeated.penalty_, rtol=1e-5)
    np.testing.assert_allclose(shuffled.coef_, weighted.coef_, rtol=1e-5)


def test_labels_may_be_texts_booleans_or_any_numbers():
    X, y = three_classes()
    for labels in (np.array(["rot", "grün", "blau"]), np.array([-3.0, 0.0, 17.0]), np.array([5, 7, 9], dtype=np.int8)):
        model = LogisticRegression(penalty=1.0).fit(X, labels[y])
        assert model.classes_.tolist() == sorted(labels.tolist())
        assert set(model.predict(X)) <= set(labels)
        assert model.score(X, labels[y]) > 0.95
    assert LogisticRegression(penalty=1.0).fit(X, y == 1).predict(X).dtype == bool
    assert LogisticRegression(penalty=1.0).fit(X, np.array(["a", "b", "c"], dtype=object)[y]).score(X, np.array(["a", "b", "c"])[y]) > 0.95


def test_pipelines_clones_grids_joblib_and_pickles():
    X, y = three_classes()
    model = make_pipeline(StandardScaler(), LogisticRegression())
    scores = cross_val_score(model, X, y, n_jobs=2)
    assert scores.mean() > 0.95
    grid = GridSearchCV(LogisticRegression(), {"penalty": [0.1, "one"]}, n_jobs=2, cv=3).fit(X, y)
    assert grid.best_score_ > 0.9
    fitted = LogisticRegression(penalty="per-class", random_state=3).fit(X, y)
    assert clone(fitted).get_params() == fitted.get_params()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(X), fitted.predict_proba(X))
    without = LogisticRegression(penalty=1.0, keep_samples=False).fit(X, y)
    assert len(pickle.dumps(without)) < 5000 < len(pickle.dumps(fitted))


def test_names_of_features_are_kept_and_compared():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X, y = three_classes()
    frame = pandas.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    model = LogisticRegression(penalty=1.0).fit(frame, y)
    assert model.feature_names_in_.tolist() == frame.columns.tolist()
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"x0": "z"}))


@pytest.mark.parametrize("make", [LogisticRegression, Ridge])
def test_what_cannot_be_used_is_refused_by_name(make):
    scipy_sparse = pytest.importorskip("scipy.sparse")
    X, y = two_classes()
    for sparse in (scipy_sparse.csr_matrix(X), scipy_sparse.coo_array(X)):
        with pytest.raises(TypeError, match="does not take sparse data.*toarray"):
            make().fit(sparse, y)
        with pytest.raises(TypeError, match="does not take sparse data"):
            make(penalty=1.0).fit(X, y).predict(sparse)
    for penalty in ("l2", None, True, -1.0, np.nan, [1.0, 2.0], "none", object()):
        with pytest.raises(ValueError, match="penalty"):
            make(penalty=penalty).fit(X, y)
    for folds in (1, 2.5, "five"):
        with pytest.raises(ValueError, match="folds"):
            make(folds=folds).fit(X, y)
    with pytest.raises(ValueError, match="tolerance"):
        make(tolerance=0.0).fit(X, y)
    with pytest.raises(ValueError, match="[Nn]egative"):
        make(penalty=1.0).fit(X, y, np.where(np.arange(len(X)) == 3, -1.0, 1.0))
    with pytest.raises(ValueError, match="is 0 for all|non-zero"):
        make(penalty=1.0).fit(X, y, np.zeros(len(X)))
    with pytest.raises(ValueError, match="scale it first"):
        make(penalty=1.0).fit(1e200 * X, y)
    with pytest.raises(ValueError, match="NaN"):
        make(penalty=1.0).fit(np.where(X == X[0, 0], np.nan, X), y)
    with pytest.raises(ValueError, match="too few distinct samples"):
        make().fit(np.repeat(X[[0, 20]], 10, axis=0), np.repeat([0, 1], 10)) if make is LogisticRegression else make().fit(X[:1].repeat(5, 0), y[:1].repeat(5))


def test_a_problem_without_a_best_fit_is_refused_with_the_way_out():
    X, y = three_classes()
    with pytest.raises(ValueError, match="linearly separable"):
        LogisticRegression(penalty=0.0).fit(X, y)
    with pytest.raises(ValueError, match="linearly separable"):
        LogisticRegression(penalty=0).fit(X, y == 1)
    # But for samples on the plane that separates them.
    line = np.array([[-2.0], [-1.0], [0.0], [0.0], [1.0], [2.0]])
    with pytest.raises(ValueError, match="linearly separable"):
        LogisticRegression(penalty=0).fit(line, [0, 0, 0, 1, 1, 1])
    with pytest.raises(ValueError, match="linearly dependent"):
        LogisticRegression(penalty=0).fit(np.column_stack([line, 2 * line]), [0, 1, 0, 1, 0, 1])
    with pytest.raises(ValueError, match="linearly dependent"):
        Ridge(penalty=0.0).fit(np.column_stack([X, X[:, 0]]), y)
    with pytest.raises(ValueError, match="one class"):
        LogisticRegression().fit(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match="per-class"):
        Ridge(penalty="per-class").fit(X, y)


def test_without_a_penalty_a_unique_fit_is_found():
    X, y = datasets.load_iris(return_X_y=True)
    X, y = X[50:], y[50:]
    ours = LogisticRegression(penalty=0).fit(X, y)
    # The log-likelihood at the maximum, as R's glm gives it for versicolor and virginica: deviance 11.899.
    assert -2 * np.sum(ours.predict_log_proba(X)[np.arange(100), y - 1]) == pytest.approx(11.899, abs=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, bool])
def test_other_types_and_layouts_of_input_give_the_same_model(dtype, rng):
    X = rng.integers(0, 2, size=(90, 4)).astype(dtype)
    y = (X[:, 0] + rng.normal(size=90) > 0.5).astype(int)
    base = LogisticRegression(penalty=1.0).fit(X.astype(float), y)
    np.testing.assert_array_equal(LogisticRegression(penalty=1.0).fit(np.asfortranarray(X), y).coef_, base.coef_)
    strided = np.repeat(X, 2, axis=0)[::2]
    np.testing.assert_array_equal(LogisticRegression(penalty=1.0).fit(strided, y).coef_, base.coef_)


def test_the_estimator_does_not_see_later_changes_of_the_training_samples():
    X, y = datasets.load_diabetes(return_X_y=True)
    X = np.ascontiguousarray(X)
    model = Ridge(penalty=1.0).fit(X, y)
    kept = model._fitted.samples.A.copy()
    X[:] = 0
    np.testing.assert_array_equal(model._fitted.samples.A, kept)


def test_without_scikit_learn_the_import_says_what_to_install():
    code = "import sys; sys.modules['sklearn'] = None; import onestep.sklearn"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "ImportError: onestep.sklearn needs scikit-learn: pip install" in ended.stderr
