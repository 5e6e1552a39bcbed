"""Penalties that onestep.sklearn finds: where the search ends, and that several are no worse than one."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn", "1.6", reason="scikit-learn is not installed")

from sklearn import datasets
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from onestep.sklearn import LogisticRegression, Ridge
from onestep.sklearn._folds import Judged, deal, distinct, folds_of, standard_error, weighted_mean


def losses(model, X, y):
    if isinstance(model, Ridge):
        return 0.5 * (model.predict(X) - y) ** 2
    return -model.predict_log_proba(X)[np.arange(len(y)), np.searchsorted(model.classes_, y)]


def few_digits():
    X, y = datasets.load_digits(n_class=4, return_X_y=True)
    keep = X[:300].std(axis=0) > 4
    return X[:300][:, keep], y[:300]


SETS = {
    "wine": datasets.load_wine,
    "iris": datasets.load_iris,
    "breast_cancer": datasets.load_breast_cancer,
    "diabetes": datasets.load_diabetes,
}


def split(name, seed):
    X, y = few_digits() if name == "digits" else SETS[name](return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.4, random_state=seed)
    scaler = StandardScaler().fit(X)
    return scaler.transform(X), scaler.transform(X_test), y, y_test


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, "per-feature") for name in SETS] + [("wine", "per-class"), ("iris", "per-class"), ("digits", "per-class")],
)
def test_several_penalties_are_not_worse_than_one_by_more_than_a_standard_error(name, kind):
    make = Ridge if name == "diabetes" else LogisticRegression
    differences = []
    for seed in range(3):
        X, X_test, y, y_test = split(name, seed)
        one = losses(make().fit(X, y), X_test, y_test)
        several = losses(make(penalty=kind).fit(X, y), X_test, y_test)
        differences.append(several - one)
    all_differences = np.concatenate(differences)
    error = all_differences.std(ddof=1) / np.sqrt(len(all_differences))
    assert all_differences.mean() <= error


def made(rng, samples, features, useful, classes=2):
    X = rng.normal(size=(samples, features))
    B = np.zeros((features, classes))
    B[:useful] = rng.normal(size=(useful, classes))
    return X, (X @ B + rng.gumbel(size=(samples, classes))).argmax(axis=1)


def test_a_penalty_for_each_feature_is_better_where_most_features_are_worth_nothing():
    X, y = made(np.random.default_rng(1), 2400, 40, 4)
    train, test = slice(0, 480), slice(480, None)
    one = LogisticRegression().fit(X[train], y[train])
    several = LogisticRegression(penalty="per-feature").fit(X[train], y[train])
    assert several.search_.kept == "per-feature"
    assert several.search_.tried[0].deviation == 0
    assert any(t.is_certain for t in several.search_.tried[1:])
    assert several.penalty_.shape == (40,)
    assert np.median(several.penalty_[4:]) > 10 * np.median(several.penalty_[:4])
    gain = losses(one, X[test], y[test]) - losses(several, X[test], y[test])
    assert gain.mean() > 2 * gain.std() / np.sqrt(gain.size)
    assert gain.mean() > 0.02 * losses(one, X[test], y[test]).mean()


def test_penalties_for_each_class_are_kept_where_the_features_say_nothing_about_some(rng):
    # They tell the first class from the others, and nothing about which of the others it is.
    N, n = 2000, 25
    X = rng.normal(size=(N, n))
    outputs = np.zeros((N, 4))
    outputs[:, 0] = X @ rng.normal(size=n)
    y = (outputs + rng.gumbel(size=outputs.shape)).argmax(axis=1)
    one = LogisticRegression(folds=3).fit(X[:400], y[:400])
    several = LogisticRegression(penalty="per-class", folds=3).fit(X[:400], y[:400])
    assert several.search_.kept == "per-class"
    assert several.penalty_.shape == (4,)
    assert several.penalty_[0] < several.penalty_[1:].min() / 3
    gain = losses(one, X[400:], y[400:]) - losses(several, X[400:], y[400:])
    assert gain.mean() > 2 * gain.std() / np.sqrt(gain.size)


@pytest.mark.parametrize("make", [LogisticRegression, Ridge])
def test_the_search_for_one_penalty_ends_below_every_point_of_a_grid(make):
    X, X_test, y, _ = split("diabetes" if make is Ridge else "breast_cancer", 0)
    model = make().fit(X, y)
    first, _ = distinct(X, y, np.ones(len(y)))
    classes = np.zeros(len(first), dtype=int) if make is Ridge else y[first]
    folds = folds_of(classes, np.arange(len(first)), 5, np.random.RandomState(0))

    def held_out_loss(penalty):
        judged = []
        for fold in folds:
            fit = make(penalty=penalty).fit(X[first][fold.train], y[first][fold.train])
            judged.append(losses(fit, X[first][fold.valid], y[first][fold.valid]))
        return np.concatenate(judged).mean()

    at_the_end = held_out_loss(model.penalty_)
    scale = (y - y.mean()).var() if make is Ridge else 1.0  # the target is scaled inside
    np.testing.assert_allclose(model.search_.loss * scale, at_the_end, rtol=1e-5)
    assert at_the_end <= min(held_out_loss(p) for p in np.logspace(-3, 4, 29)) * (1 + 1e-9)


def test_where_there_are_too_few_samples_one_penalty_is_kept_and_said_why(rng):
    X, y = rng.normal(size=(12, 3)), np.arange(12) % 2
    model = LogisticRegression(penalty="per-feature").fit(X, y)
    assert model.search_.kept == "one"
    assert "too few samples" in model.search_.note
    assert np.ndim(model.penalty_) == 0
    assert model.penalty_ == LogisticRegression().fit(X, y).penalty_


def test_one_penalty_that_is_kept_has_the_bits_of_the_search_for_one():
    X, _, y, _ = split("iris", 0)
    one, several = LogisticRegression().fit(X, y), LogisticRegression(penalty="per-feature").fit(X, y)
    assert several.search_.kept == "one"
    np.testing.assert_array_equal(several.coef_, one.coef_)


def test_with_two_classes_a_penalty_for_each_class_is_one():
    X, _, y, _ = split("breast_cancer", 0)
    model = LogisticRegression(penalty="per-class").fit(X, y)
    assert model.penalty_ == LogisticRegression().fit(X, y).penalty_
    assert model.search_.kept == "one"


def test_folds_hold_each_sample_out_once_with_its_share_of_every_class(rng):
    classes = np.repeat([0, 1, 2, 3], [50, 20, 7, 1])
    fold = deal(classes, 5, rng := np.random.RandomState(1))
    assert fold[-1] == -1  # the only one of its class is in every fit
    for k, size in ((0, 50), (1, 20), (2, 7)):
        counts = np.bincount(fold[classes == k], minlength=5)
        assert counts.sum() == size
        assert counts.max() - counts.min() <= 1
    folds = folds_of(classes, np.arange(78), 5, rng)
    assert sorted(np.concatenate([f.valid for f in folds])) == list(range(77))
    for f in folds:
        assert not set(f.train) & set(f.valid)
        assert 77 in f.train


def test_identical_samples_share_a_fold_in_an_order_of_their_values(rng):
    X = np.repeat(rng.normal(size=(10, 3)), 3, axis=0)
    X[0] = [-0.0, -1e300, 5]
    X[1] = [0.0, -1e300, 5]
    order = rng.permutation(30)
    first, w = distinct(X[order], np.zeros(30), np.ones(30))
    assert w.sum() == 30
    assert len(first) == len(np.unique(X, axis=0))
    np.testing.assert_array_equal(X[order][first], np.unique(X, axis=0))


def test_the_standard_error_counts_samples_of_a_fold_that_vary_together(rng):
    alone = [Judged(rng.normal(size=20), np.ones(20)) for _ in range(5)]
    together = [Judged(j.losses + shift, j.weights) for j, shift in zip(alone, (-3, 3, 0, -3, 3))]
    assert standard_error(alone) == pytest.approx(np.concatenate([j.losses for j in alone]).std(ddof=1) / 10, rel=0.3)
    assert standard_error(together) > 1
    doubled = [Judged(j.losses, 7 * j.weights) for j in alone]
    assert standard_error(doubled) == pytest.approx(standard_error(alone))
    assert weighted_mean(doubled) == pytest.approx(weighted_mean(alone))
