"""Wrong labels that onestep.sklearn finds, and that no label vouches for itself."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

pytest.importorskip("sklearn", "1.6", reason="scikit-learn is not installed")

from sklearn import datasets
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.model_selection import train_test_split

from onestep.sklearn import LogisticRegression, Ridge
from onestep.sklearn._label_noise import LabelNoise, confident_noise, estimate_noise, most_probably_wrong, posterior, tempered
from onestep.sklearn._suspects import BeforeAndAfter, Cleaner

SETS = {"wine": datasets.load_wine, "iris": datasets.load_iris, "breast_cancer": datasets.load_breast_cancer}


def flipped(y, share, rng):
    bad = rng.random(len(y)) < share
    return np.where(bad, (y + rng.integers(1, y.max() + 1, len(y))) % (y.max() + 1), y), bad


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("name", SETS)
def test_flipped_labels_are_found_and_the_model_without_them_is_better(name, trusted):
    f1, auc, before, after = [], [], [], []
    for seed in range(3):
        X, X_test, y, y_test = train_test_split(*SETS[name](return_X_y=True), test_size=0.3, random_state=seed)
        X_val = y_val = None
        if trusted:
            X, X_val, y, y_val = train_test_split(X, y, test_size=0.2, stratify=y, random_state=seed)
        y, bad = flipped(y, 0.2, np.random.default_rng(seed))
        model = LogisticRegression(penalty=1.0).fit(X, y)
        found = model.suspects(X_val, y_val)
        assert found.decided
        assert not found.harms
        assert found.noise == pytest.approx(bad.mean(), abs=0.08)
        f1.append(f1_score(bad, found.suspects))
        auc.append(roc_auc_score(bad, -found.quality))
        before.append(model.score(X_test, y_test))
        after.append(LogisticRegression(penalty=1.0).fit(X[~found.suspects], y[~found.suspects]).score(X_test, y_test))
        assert set(np.flatnonzero(found.suspects)) <= set(found.order[: 2 * found.suspects.sum()])
        assert (found.other != y).all()
    assert np.mean(f1) > 0.83
    assert np.mean(auc) > 0.97
    assert np.mean(after) > np.mean(before)


def test_only_trusted_labels_tell_that_cleaning_does_harm():
    worse = BeforeAndAfter(before=0.9, after=0.8, standard_error=0.01)
    same = BeforeAndAfter(before=0.3, after=0.3, standard_error=0.01)
    found = LogisticRegression(penalty=1.0).fit(*datasets.load_iris(return_X_y=True)).suspects()
    assert not found.trusted
    assert not dataclasses.replace(found, accuracy=worse, loss=same).harms
    assert dataclasses.replace(found, accuracy=worse, loss=same, trusted=True).harms


@pytest.mark.parametrize("classes", [2, 3])
def test_no_label_reaches_the_fits_that_judge_it(classes, rng):
    X = rng.normal(size=(70, 3))
    y = np.argmax(X[:, :classes] + 0.5 * rng.normal(size=(70, classes)), axis=1)
    fold = rng.integers(0, 5, 70)
    which = 11

    def quality(label):
        labels = y.copy()
        labels[which] = label
        fitted = LogisticRegression(penalty=1.0).fit(X, labels)._fitted
        model = type(fitted.model)(**{**vars(fitted.model), "factors": np.ones(3)})
        cleaner = Cleaner(model, fitted.samples.A, labels, np.ones(70), 70, np.asarray(1.0), np.random.RandomState(0))
        cleaner.fold = fold  # how samples are dealt depends on the labels, evenly by class
        return cleaner.judge().quality[which]

    assert sum(quality(k) for k in range(classes)) == pytest.approx(1.0, abs=1e-12)


def test_labels_that_features_say_nothing_about_are_undecided(rng):
    decided = []
    for _ in range(20):
        X, y = rng.normal(size=(150, 8)), rng.integers(0, 2, 150)
        found = LogisticRegression(penalty=1.0).fit(X, y).suspects()
        decided.append(found.decided)
        if not found.decided:
            assert not found.suspects.any()
            assert not found.helps
            np.testing.assert_array_equal(found.order, np.arange(150))
    assert sum(decided) <= 1


def test_correct_labels_of_separated_classes_have_no_suspects(rng):
    X = np.concatenate([rng.normal(size=(60, 4)) - 3, rng.normal(size=(60, 4)) + 3])
    found = LogisticRegression(penalty=1.0).fit(X, np.repeat([0, 1], 60)).suspects()
    assert found.decided
    assert not found.suspects.any()
    assert found.noise < 0.01
    assert (found.right > 0.99).all()


def test_one_wrong_label_among_texts_is_first(rng):
    X, y = datasets.load_iris(return_X_y=True)
    labels = np.array(["setosa", "versicolor", "virginica"])[y]
    labels[5] = "virginica"
    found = LogisticRegression(penalty=1.0).fit(X, labels).suspects()
    assert found.order[0] == 5
    assert found.suspects[5]
    assert found.other[5] == "setosa"


def test_units_of_features_and_weights_of_nothing_do_not_matter(rng):
    X, y = datasets.load_wine(return_X_y=True)
    y, _ = flipped(y, 0.1, rng)
    w = np.ones(len(y))
    w[::10] = 0
    kept = w > 0
    found = LogisticRegression(penalty=1.0).fit(X, y, w).suspects()
    alone = LogisticRegression(penalty=0.01).fit(X[kept] * 10.0 ** rng.integers(-5, 5, X.shape[1]), y[kept]).suspects()
    np.testing.assert_array_equal(found.suspects[kept], alone.suspects)
    np.testing.assert_allclose(found.quality[kept], alone.quality, atol=1e-6)
    assert not found.suspects[~kept].any()
    assert set(found.order[-(~kept).sum() :]) == set(np.flatnonzero(~kept))


def test_copies_of_a_sample_do_not_vouch_for_its_label(rng):
    X = np.concatenate([rng.normal(size=(60, 4)) - 1, rng.normal(size=(60, 4)) + 1])
    y = np.repeat([0, 1], 60)
    X[:6], y[:6] = X[0] + 0.0, 1  # six copies, all mislabelled
    found = LogisticRegression(penalty=0.1).fit(X, y).suspects(penalty=0.01)
    assert set(range(6)) <= set(found.order[:8])
    assert (found.quality[:6] < 0.02).all()
    assert np.ptp(found.quality[:6]) < 1e-9


def test_what_cannot_be_judged_is_refused(rng):
    X, y = rng.normal(size=(30, 2)), np.repeat([0, 1], 15)
    model = LogisticRegression(penalty=1.0).fit(X, y)
    with pytest.raises(ValueError, match="both X_val and y_val"):
        model.suspects(X)
    with pytest.raises(ValueError, match="penalty"):
        model.suspects(penalty=0.0)
    with pytest.raises(ValueError, match="labels that the training samples do not have"):
        model.suspects(X, y + 1)
    with pytest.raises(ValueError, match="two samples or more"):
        LogisticRegression(penalty=1.0).fit(X[:5], [0, 0, 0, 0, 1]).suspects()
    assert not hasattr(Ridge(), "suspects")


def test_noise_is_estimated_from_probabilities_that_are_right(rng):
    p = rng.dirichlet([0.3, 0.3, 0.3], 4000)
    truth = (p.cumsum(axis=1) > rng.random((4000, 1))).argmax(axis=1)
    given = np.array([[0.8, 0.15, 0.05], [0.1, 0.9, 0.0], [0.0, 0.3, 0.7]])
    labels = (given[truth].cumsum(axis=1) > rng.random((4000, 1))).argmax(axis=1)
    noise = estimate_noise(p, labels, confident_noise(p, labels), 30)
    np.testing.assert_allclose(noise.given, given, atol=0.04)
    right = posterior(p, labels, noise)[np.arange(4000), labels]
    assert right.mean() == pytest.approx((labels == truth).mean(), abs=0.02)
    wrong = most_probably_wrong(right)
    assert f1_score(labels != truth, wrong) > 0.6


def test_rules_of_probabilities_hold_at_their_ends():
    p = np.array([[1.0, 0.0], [0.5, 0.5]])
    np.testing.assert_allclose(tempered(p, 2.0).sum(axis=1), 1)
    np.testing.assert_allclose(posterior(p, np.array([1, 0]), LabelNoise.even(2, 0.2))[0], [1, 0])
    assert not most_probably_wrong(np.array([0.9, 0.9])).any()
    assert most_probably_wrong(np.array([0.1, 0.99, 0.98])).tolist() == [True, False, False]
    even = LabelNoise.even(3, 0.3)
    np.testing.assert_allclose(even.given, [[0.7, 0.15, 0.15], [0.15, 0.7, 0.15], [0.15, 0.15, 0.7]])
