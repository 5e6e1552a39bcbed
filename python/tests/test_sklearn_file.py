"""Estimators of onestep.sklearn as model files of the command, and the other way round."""

from __future__ import annotations

import dataclasses
import os
import subprocess

import numpy as np
import pytest

import onestep

pytest.importorskip("sklearn", "1.6", reason="scikit-learn is not installed: pip install 'scikit-learn>=1.6'")

from sklearn import datasets
from sklearn.exceptions import NotFittedError

from onestep.sklearn import LogisticRegression, Ridge, from_model


def fitted(kind):
    X, y = datasets.load_diabetes(return_X_y=True) if kind.startswith("ridge") else datasets.load_wine(return_X_y=True)
    penalty = np.linspace(0.1, 2, X.shape[1]) if kind == "ridge of many penalties" else 0.5
    if kind.startswith("ridge"):
        return Ridge(penalty).fit(X, y), X
    labels = {"two": y == 1, "numbers": np.array([-3.0, 2.0, 7.0])[y], "texts": np.array(["rot", "grün", "blau"])[y]}
    labels |= {"two texts": np.where(y == 1, "a", "b"), "whole": y}
    return LogisticRegression(penalty).fit(X, labels[kind]), X


KINDS = ["two", "two texts", "numbers", "texts", "whole", "ridge", "ridge of many penalties"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_estimator_that_was_written_and_read_predicts_the_same(kind, tmp_path):
    estimator, X = fitted(kind)
    estimator.to_model().write(tmp_path / "model.json")
    model = onestep.read_model(tmp_path / "model.json")
    again = from_model(model)
    if kind.startswith("ridge"):
        np.testing.assert_allclose(again.predict(X), estimator.predict(X), rtol=1e-12)
        np.testing.assert_allclose(model.predict(X), estimator.predict(X), rtol=1e-12)
    else:
        np.testing.assert_allclose(again.predict_proba(X), estimator.predict_proba(X), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(model.probabilities(X), estimator.predict_proba(X), rtol=1e-9, atol=1e-12)
        assert [str(p) for p in again.predict(X)] == [
            str(p) for p in again.classes_[estimator.predict_proba(X).argmax(axis=1)]
        ]
        if kind not in ("two",):  # whose labels were booleans
            np.testing.assert_array_equal(again.predict(X), estimator.predict(X))
            assert again.score(X, estimator.predict(X)) == 1.0
    if kind != "ridge of many penalties":
        assert again.penalty_ == pytest.approx(0.5)
    for name in ("coef_", "intercept_"):
        np.testing.assert_allclose(getattr(again, name), getattr(estimator, name), rtol=1e-12)
    assert again.search_ is None and again.n_features_in_ == X.shape[1]


def test_a_scaled_model_of_the_command_is_fitted_in_the_units_of_the_features():
    rng = np.random.default_rng(0)
    X, mean, scale = rng.normal(size=(20, 2)), np.array([1.0, -2.0]), np.array([0.5, 4.0])
    model = onestep.LinearModel(
        "softmax", rng.normal(size=(2, 3)), rng.normal(size=3), [1, 2, 5], ["b", "c", "a"], mean, scale, l2=2.0
    )
    estimator = from_model(model)
    assert estimator.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(estimator.predict_proba(X)[:, [1, 2, 0]], model.probabilities(X), rtol=1e-12)
    np.testing.assert_array_equal(estimator.predict(X), model.predict(X))
    np.testing.assert_allclose(estimator.penalty_, 2.0 * scale**2)
    reversed_names = onestep.LinearModel("logistic", [1.0, -2.0], 0.5, [0, 1], ["yes", "no"], mean, scale)
    np.testing.assert_array_equal(from_model(reversed_names).predict(X), reversed_names.predict(X))
    tuned = {"hyper": "l2-per-feature", "names": ["1", "2"], "values": [3.0, 5.0]}
    ridge = onestep.LinearModel("ridge", [1.0, -2.0], 0.5, mean=mean, scale=scale, l2=15**0.5, hyperparameters=tuned)
    np.testing.assert_allclose(from_model(ridge).penalty_, [3.0 * 0.25, 5.0 * 16])
    np.testing.assert_allclose(from_model(ridge).predict(X), ridge.predict(X), rtol=1e-12)


def test_what_a_file_does_not_have_is_refused():
    estimator, X = fitted("whole")
    again = from_model(estimator.to_model())
    with pytest.raises(ValueError, match="a model from a file has none"):
        again.influence(X, again.predict(X))
    with pytest.raises(ValueError, match="a model from a file has none"):
        again.coef_se_
    with pytest.raises(NotFittedError):
        Ridge().to_model()
    with pytest.raises(onestep.MisuseError, match="read_model"):
        from_model("model.json")
    with pytest.raises(ValueError, match="features"):
        again.predict(X[:, :3])


def test_names_of_features_go_with_the_model():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed: pip install pandas")
    X, y = datasets.load_wine(return_X_y=True)
    frame = pandas.DataFrame(X[:, :3], columns=["a", "b", "c"])
    estimator = LogisticRegression(1.0).fit(frame, y)
    assert estimator.to_model().features == ["a", "b", "c"]
    assert from_model(estimator.to_model()).feature_names_in_.tolist() == ["a", "b", "c"]


command = pytest.mark.skipif(
    not os.environ.get("ONESTEP_COMMAND"), reason="$ONESTEP_COMMAND names no command onestep; ./run test builds one"
)


@command
@pytest.mark.parametrize("loss", ["logistic", "softmax", "ridge"])
def test_the_command_predicts_with_an_estimator_and_an_estimator_with_what_the_command_fitted(loss, tmp_path):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(60, 2))
    y = {"ridge": X @ [1, 2], "logistic": np.where(X[:, 0] > 0, 1, 0), "softmax": np.sum(X > 0, axis=1)}[loss]
    y = np.where(rng.random(60) < 0.1, np.roll(y, 1), y)
    file = tmp_path / "train.csv"
    file.write_text(
        "first,second,target\n" + "".join(f"{a!r},{b!r},{t}\n" for (a, b), t in zip(X.tolist(), y.tolist()))
    )

    def run(*arguments):
        done = subprocess.run([os.environ["ONESTEP_COMMAND"], *map(str, arguments)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def predictions(model):
        table = run("predict", tmp_path / model, file, "--csv", "-").splitlines()
        return np.array([line.split(",")[1] for line in table[1:]], dtype=float)

    run("fit", file, "--loss", loss, "--standardise", "--save", tmp_path / "theirs.json")
    theirs = onestep.read_model(tmp_path / "theirs.json")
    estimator = from_model(theirs)
    predicted = predictions("theirs.json")
    with pytest.warns(UserWarning, match="feature names"):  # of an array, where the file had names
        np.testing.assert_allclose(estimator.predict(X), predicted, rtol=1e-9)
    # The same fit by the estimator itself.
    same = (Ridge if loss == "ridge" else LogisticRegression)(estimator.penalty_).fit(X, y)
    np.testing.assert_allclose(same.coef_, estimator.coef_, rtol=1e-6, atol=1e-8)
    features = [str(j) for j in theirs.features]
    mine = dataclasses.replace(
        same.to_model(),
        features=features,
        encoding=theirs.encoding,
        header=True,
        target=theirs.target,
        target_column=theirs.target_column,
    )
    mine.write(tmp_path / "mine.json")
    np.testing.assert_allclose(predictions("mine.json"), predicted, rtol=1e-6)
