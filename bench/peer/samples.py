"""The data of the suite jobs, as bench/samples.cpp has it bit for bit: real sets where their files are, else made ones of
the same shape. Samples have a column of ones behind their features."""
import bz2
import gzip

import numpy as np
from peer.data import gaussian, logistic_data, uniform
from peer.environment import FASHION, name_of, shared_file

CLASSES = 10


def with_ones(A):
    return np.column_stack([A, np.ones(len(A))])


def read_libsvm(file, features):
    text = (bz2.decompress(file.read_bytes()) if file.suffix == ".bz2" else file.read_bytes()).decode()
    lines = [line.split() for line in text.splitlines() if line.strip()]
    A, y = np.zeros((len(lines), features)), np.array([float(line[0]) for line in lines])
    for i, line in enumerate(lines):
        for pair in line[1:]:
            j, value = pair.split(":")
            A[i, int(j) - 1] = float(value)
    return with_ones(A), np.where(y == np.max(y), 1.0, -1.0)


def made(N, n):
    A, y, _, _, _ = logistic_data(N, n)
    return with_ones(A), y


def a9a():
    """A and y for training, A and y for validation."""
    if name_of("a9a") == "a9a":
        return *read_libsvm(shared_file("a9a"), 123), *read_libsvm(shared_file("a9a.t"), 123)
    A, y = made(32561 + 16281, 123)
    return A[:32561], y[:32561], A[32561:], y[32561:]


def called(which):
    if which == "made":
        return made(10000, 100)
    file, N, n = {"a9a": ("a9a", 32561, 123), "ijcnn1": ("ijcnn1.trn.bz2", 49990, 22)}[which]
    return read_libsvm(shared_file(file), n) if name_of(which) == which else made(N, n)


def images():
    """A and one-hot labels for training, and for validation."""
    if name_of("Fashion-MNIST") == "Fashion-MNIST":
        read = lambda name, skip: np.frombuffer(gzip.decompress((FASHION / name).read_bytes()), np.uint8, offset=skip)
        A = read("t10k-images-idx3-ubyte.gz", 16).reshape(-1, 784) * (1 / 255.0)
        y = read("t10k-labels-idx1-ubyte.gz", 8).astype(np.int64)
    else:
        A = logistic_data(10000, 784)[0]
        y = np.argmax(A[:, :CLASSES] + np.stack([gaussian(50 + k, 10000) for k in range(CLASSES)], 1), axis=1)
    away = 1 + ((CLASSES - 1) * uniform(63, 5000)).astype(np.int64)
    y[:5000] = np.where(uniform(62, 5000) < 0.3, (y[:5000] + away) % CLASSES, y[:5000])
    A, Y = with_ones(A), np.eye(CLASSES)[y]
    return A[:5000], Y[:5000], A[5000:], Y[5000:]


# ---- what the rows ask for ----


def penalties():
    """One for each feature, near to the ones that the solution before was found with."""
    return 0.5 + uniform(60, 123)


def weights():
    return 1 - 0.5 * uniform(61, 5000)
