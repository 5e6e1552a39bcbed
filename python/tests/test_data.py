"""Samples, programs and models from files: what the readers return, what they refuse, and models that the command reads."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import pathlib
import pickle
import struct
import subprocess

import numpy as np
import pytest

import onestep

CARS = "age,colour,kind\n1,red,a\n2,blue,b\n3,red,a\n4,blue,b\n5,red,b\n6,blue,a\n7,red,a\n"
QPS = """NAME          SMALL
ROWS
 N  cost
 E  total
COLUMNS
    x         cost      1.0   total     1.0
    y         cost      2.0   total     1.0
RHS
    rhs       total     1.0   cost      -3.0
QUADOBJ
    x         x         2.0
    y         y         2.0
ENDATA
"""


def written(path: pathlib.Path, text: str) -> pathlib.Path:
    path.write_text(text, encoding="utf-8")
    return path


# ---- samples ----


def test_libsvm_plain_and_compressed(tmp_path):
    text = "+1 1:0.5 3:2\n-1 2:-1.5\n"
    plain = written(tmp_path / "samples", text)
    packed = tmp_path / "samples.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    for path in (plain, str(plain), packed):
        data = onestep.read_libsvm(path)
        np.testing.assert_array_equal(data.A, [[0.5, 0, 2], [0, -1.5, 0]])
        np.testing.assert_array_equal(data.y, [1, -1])
        assert data.open_ended and data.first_index == 1
    assert onestep.read_libsvm(plain, 5).A.shape == (2, 5)
    assert onestep.read_dataset(plain, like=onestep.read_libsvm(plain, 4)).A.shape == (2, 4)


def test_csv_with_categories_and_other_samples_in_the_same_columns(tmp_path):
    train = onestep.read_csv(written(tmp_path / "train.csv", CARS), categories=True)
    assert train.names == ["age", "colour=red"]
    assert train.label_names == ["a", "b"]
    assert [name for column in train.encoding for name in column.feature_names()] == train.names
    np.testing.assert_array_equal(train.A[:2], [[1, 1], [2, 0]])
    np.testing.assert_array_equal(train.y, [0, 1, 0, 1, 1, 0, 0])
    assert any("colour" in note for note in train.notes)
    # Columns are found by their names; labels are those of the training samples.
    other = written(tmp_path / "other.csv", "kind,age,colour\nb,1,blue\n")
    for read in (onestep.read_csv, onestep.read_dataset):
        data = read(other, like=train)
        np.testing.assert_array_equal(data.A, [[1, 0]])
        np.testing.assert_array_equal(data.y, [1])
    unlabelled = onestep.read_csv(written(tmp_path / "new.csv", "colour,age\nred,3\n"), like=train, target_optional=True)
    np.testing.assert_array_equal(unlabelled.A, [[3, 1]])
    assert unlabelled.y.size == 0


def test_csv_options(tmp_path):
    path = written(tmp_path / "table", "1;2,5;3\n4;;6\n")
    data = onestep.read_csv(path, target=1, header=False, separator=";", decimal=",", missing="drop")
    np.testing.assert_array_equal(data.A, [[2.5, 3]])
    np.testing.assert_array_equal(data.y, [1])
    assert data.rows == [1] and data.in_file == 2
    imputed = onestep.read_csv(path, target=-1, header=False, missing="impute")
    np.testing.assert_array_equal(imputed.A, [[1, 2.5, 0], [4, 2.5, 1]])


def test_which_texts_are_missing_values_can_be_said(tmp_path):
    path = tmp_path / "codes.csv"
    path.write_text("a,kind,y\n-999,None,1\n2,x,2\n3,None,4\n5,x,3\n")
    with pytest.raises(onestep.FileError, match="None"):
        onestep.read_csv(path, categories=True)
    data = onestep.read_csv(path, categories=True, missing="impute", missing_texts=["-999"])
    assert data.names == ["a", "a is missing", "kind=x"]
    np.testing.assert_allclose(data.A[:, 0], [10 / 3, 2, 3, 5])


def test_idx(tmp_path):
    images, labels = tmp_path / "images-idx3-ubyte", tmp_path / "labels-idx1-ubyte"
    images.write_bytes(struct.pack(">BBBBIII", 0, 0, 8, 3, 2, 1, 2) + bytes([1, 2, 3, 4]))
    labels.write_bytes(struct.pack(">BBBBI", 0, 0, 8, 1, 2) + bytes([7, 9]))
    np.testing.assert_array_equal(onestep.read_idx(labels), [7, 9])
    data = onestep.read_idx(images, labels)
    np.testing.assert_array_equal(data.A, [[1, 2], [3, 4]])
    np.testing.assert_array_equal(data.y, [7, 9])
    np.testing.assert_array_equal(onestep.read_dataset(images).y, [7, 9])


def test_a_dataset_owns_its_memory_can_be_pickled_and_is_short_to_read(tmp_path):
    data = onestep.read_csv(written(tmp_path / "train.csv", CARS), categories=True)
    assert data.A.flags.writeable and data.A.flags.c_contiguous
    other = pickle.loads(pickle.dumps(data))
    np.testing.assert_array_equal(other.A, data.A)
    assert other.encoding == data.encoding
    assert repr(data) == "<Dataset: 7 samples with 2 features, 2 classes, 2 notes>"


@pytest.mark.parametrize(
    ("text", "line", "field"), [("+1 1:0.5\n-1 x\n", 2, 2), ("+1 1:nan\n", 1, 2), ("", 0, 0)], ids=["syntax", "nan", "empty"]
)
def test_what_is_wrong_in_a_file_is_an_error_with_its_place(tmp_path, text, line, field):
    path = written(tmp_path / "samples", text)
    with pytest.raises(onestep.FileError) as caught:
        onestep.read_libsvm(path)
    assert (caught.value.line, caught.value.field) == (line, field)
    assert caught.value.file.endswith("samples")


def test_a_file_that_is_not_there_and_options_that_do_not_exist():
    with pytest.raises(onestep.FileError, match="nowhere"):
        onestep.read_csv("nowhere.csv")
    with pytest.raises(onestep.MisuseError, match="'refuse', 'drop', 'impute'"):
        onestep.read_csv("nowhere.csv", missing="mean")
    with pytest.raises(onestep.MisuseError, match="a list of columns"):
        onestep.read_csv("nowhere.csv", drop="id")
    with pytest.raises(onestep.MisuseError, match="separator"):
        onestep.read_csv("nowhere.csv", separator=", ")
    with pytest.raises(TypeError):
        onestep.read_libsvm(3)


def test_signs_of_labels():
    np.testing.assert_array_equal(onestep.signs_of([2, 4, 2]), [-1, 1, -1])
    np.testing.assert_array_equal(onestep.signs_of(np.array([4.0]), [2, 4]), [1])
    with pytest.raises(onestep.MisuseError):
        onestep.signs_of([1, 2, 3])


# ---- programs ----


def test_a_program_is_read_and_solved(tmp_path):
    file = onestep.read_qps(written(tmp_path / "small.qps", QPS))
    assert (file.name, file.columns, file.equalities, file.inequalities) == ("SMALL", ["x", "y"], ["total"], [])
    assert not file.maximise
    np.testing.assert_array_equal(file.problem["Q"], [[2, 0], [0, 2]])
    s = onestep.solve_qp(**file.problem)
    # min x^2 + y^2 + x + 2 y + 3 with x + y = 1: x = 3/4.
    np.testing.assert_allclose(s.x, [0.75, 0.25], atol=1e-7)
    assert s.objective == pytest.approx(0.75**2 + 0.25**2 + 0.75 + 0.5 + 3, abs=1e-8)
    assert repr(file) == "<QpsFile SMALL: 2 variables, 1 equalities, 0 inequalities>"


# ---- models ----


def models():
    rng = np.random.default_rng(3)
    columns = [onestep.ColumnEncoding("age", fill=3.5, indicator=True), onestep.ColumnEncoding("colour", ["blue", "red"], 1.0)]
    csv = dict(
        encoding=columns, header=True, target="kind", target_column=3, missing="impute",
        features=["age", "age is missing", "colour=red"], mean=rng.normal(size=3), scale=rng.uniform(0.5, 2, 3),
        file="cars.csv", samples=7, l2=0.3,
    )  # fmt: skip
    return {
        "plain": onestep.LinearModel("ridge", rng.normal(size=2), 1 / 3),
        "ridge": onestep.LinearModel("ridge", rng.normal(size=3), -0.1, **csv),
        "logistic": onestep.LinearModel("logistic", rng.normal(size=3), 0.2, np.array([0.0, 1.0]), ["a", "b"], **csv),
        "softmax": onestep.LinearModel(
            "softmax", rng.normal(size=(3, 3)), rng.normal(size=3), np.array([0.0, 1.0, 2.0]), ["a", "b", "c"],
            hyperparameters={"hyper": "l2", "names": ["l2"], "values": [0.3]}, **csv,
        ),
        "places": onestep.LinearModel("logistic", [1.0, -2.0], 0.0, [-1.0, 1.0], places=[0, 3], features=["1", "4"]),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["plain", "ridge", "logistic", "softmax", "places"])
def test_a_model_that_was_written_is_read_again_bit_for_bit(tmp_path, name):
    model = models()[name]
    path = tmp_path / "model.json"
    model.write(path)
    again = onestep.read_model(path)
    for field in dataclasses.fields(model):
        np.testing.assert_array_equal(getattr(again, field.name), getattr(model, field.name), err_msg=field.name)
    packed = tmp_path / "model.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert onestep.read_model(packed).features == model.features
    assert sorted(os.listdir(tmp_path)) == ["model.json", "model.json.gz"]


def test_predictions_are_those_of_the_formula():
    A = np.random.default_rng(4).normal(size=(5, 3))
    for name in ("ridge", "logistic", "softmax"):
        model = models()[name]
        z = ((A - model.mean) / model.scale) @ model.coefficients + model.intercept
        raw, intercept = model.unscaled()
        np.testing.assert_allclose(A @ raw + intercept, z, rtol=1e-12)
        np.testing.assert_allclose(model.margins(A), z, rtol=1e-12)
        if name == "ridge":
            np.testing.assert_allclose(model.predict(A), z, rtol=1e-12)
            with pytest.raises(onestep.MisuseError, match="quantity"):
                model.probabilities(A)
            continue
        p = model.probabilities(A)
        np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
        if name == "logistic":
            np.testing.assert_allclose(p[:, 1], 1 / (1 + np.exp(-z)), rtol=1e-12)
        assert list(model.predict(A)) == [model.label_names[k] for k in p.argmax(axis=1)]
    sure = onestep.LinearModel("logistic", [1e4], 0.0, [-1.0, 1.0])
    np.testing.assert_array_equal(sure.probabilities([[1.0], [-1.0]]), [[0, 1], [1, 0]])
    with pytest.raises(onestep.MisuseError, match="3 features, the model 1"):
        sure.predict(A)


def test_samples_of_a_model_are_read_in_its_columns(tmp_path):
    model = models()["logistic"]
    data = model.read(written(tmp_path / "new.csv", "colour,weight,age\nred,9,1\nblue,9,\n"))
    np.testing.assert_array_equal(data.A, [[1, 0, 1], [3.5, 1, 0]])
    assert model.predict(data).shape == (2,)
    with pytest.raises(onestep.Error, match="header|without names"):
        model.read(written(tmp_path / "bare.csv", "1,2,3\n4,5,6\n"))
    sparse = models()["places"]
    data = sparse.read(written(tmp_path / "samples", "+1 1:2\n-1 2:1 4:3 5:7\n"))
    np.testing.assert_array_equal(sparse.margins(data), [2, -6])


DAMAGES = {
    "format": lambda m: m.update(format="another"),
    "version": lambda m: m.update(format_version=2),
    "loss": lambda m: m.update(loss="hinge"),
    "count": lambda m: m["coefficients"].pop(),
    "text": lambda m: m["coefficients"].__setitem__(0, "x"),
    "labels": lambda m: m["classes"].update(labels=[1, 0]),
    "member": lambda m: m.pop("input"),
    "type": lambda m: m.update(input=3),
    "scale": lambda m: m["scaling"]["scale"].__setitem__(0, 0.0),
    "columns": lambda m: m["input"]["columns"].pop(),
    "reference": lambda m: m["input"]["columns"][1].update(reference="red"),
    "samples": lambda m: m.update(samples=0),
    "null": lambda m: m.update(coefficients=None),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_model_is_refused(tmp_path, damage):
    path = tmp_path / "model.json"
    models()["logistic"].write(path)
    parts = json.loads(path.read_text())
    DAMAGES[damage](parts)
    path.write_text(json.dumps(parts))
    with pytest.raises(onestep.FileError) as caught:
        onestep.read_model(path)
    assert caught.value.problem and str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "3", "{", '{"format": "onestep model", "format": 1}', "NaN"])
def test_what_is_no_model_is_refused(tmp_path, text):
    with pytest.raises(onestep.FileError):
        onestep.read_model(written(tmp_path / "model.json", text))


def test_what_cannot_be_a_model_is_misuse():
    for arguments in [("ridge", [np.nan], 0.0), ("ridge", [[1.0]], 0.0), ("logistic", [1.0], 0.0), ("hinge", [1.0], 0.0)]:
        with pytest.raises(onestep.MisuseError, match="LinearModel"):
            onestep.LinearModel(*arguments)


command = pytest.mark.skipif(
    not os.environ.get("ONESTEP_COMMAND"), reason="$ONESTEP_COMMAND names no command onestep; ./run test builds one"
)


def run_command(*arguments):
    done = subprocess.run([os.environ["ONESTEP_COMMAND"], *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@command
@pytest.mark.parametrize("name", ["ridge", "logistic", "softmax"])
def test_the_command_predicts_with_a_model_that_python_wrote(tmp_path, name):
    model = models()[name]
    model.write(tmp_path / "model.json")
    new = written(tmp_path / "new.csv", "colour,age\nred,1\nblue,\nblue,7\n")
    table = run_command("predict", tmp_path / "model.json", new, "--csv", "-").splitlines()
    data = model.read(new)
    predicted = [line.split(",")[1] for line in table[1:]]
    if name == "ridge":
        np.testing.assert_allclose(np.array(predicted, dtype=float), model.predict(data), rtol=1e-12)
    else:
        assert predicted == list(model.predict(data))
        p = np.array([line.split(",")[2:] for line in table[1:]], dtype=float)
        np.testing.assert_allclose(p[:, -1], model.probabilities(data)[:, -1], rtol=1e-12)


@command
@pytest.mark.parametrize("loss", ["logistic", "softmax", "ridge"])
def test_python_predicts_with_a_model_that_the_command_wrote(tmp_path, loss):
    rng = np.random.default_rng(5)
    A = rng.normal(size=(60, 2))
    y = {"ridge": A @ [1, 2], "logistic": np.where(A[:, 0] > 0, 1, 0), "softmax": np.sum(A > 0, axis=1)}[loss]
    y = np.where(rng.random(60) < 0.1, np.roll(y, 1), y)
    rows = "".join(f"{a!r},{b!r},{'red' if i % 3 else 'blue'},{t}\n" for i, ((a, b), t) in enumerate(zip(A.tolist(), y)))
    train = written(tmp_path / "train.csv", "first,second,colour,target\n" + rows)
    run_command("fit", train, "--loss", loss, "--standardise", "--save", tmp_path / "model.json")
    model = onestep.read_model(tmp_path / "model.json")
    assert (model.loss, model.samples, model.target) == (loss, 60, "target")
    data = model.read(train)
    assert data.A.shape == (60, 3)
    table = run_command("predict", tmp_path / "model.json", train, "--csv", "-").splitlines()
    predicted = np.array([line.split(",")[1] for line in table[1:]], dtype=float)
    np.testing.assert_allclose(predicted, model.predict(data), rtol=1e-12)
    # What was written again is the same model to the command.
    model.write(tmp_path / "again.json")
    assert run_command("predict", tmp_path / "again.json", train, "--csv", "-").splitlines() == table
