"""What the jobs answer, beside peers that are asked the same: mislabelled samples beside cleanlab, the effect of removing a
sample beside training again without it by scikit-learn, penalties beside LogisticRegressionCV. Quality first, then time: the
CPU seconds of our command, reading and printing included, beside those of the peer's calls, imports excluded."""
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings

from peer.environment import BUILD, SCRIPT, make_environment, shared_file

COMMAND = BUILD / "app" / "onestep"
PACKAGES = ["numpy", "scikit-learn", "cleanlab"]
SPLITS = 5
# Labels that are wrong: a share of all; "class": two fifths of every other class, as the next one.
NOISE = [0.2, 0.05, "class"]
CLEAN = ["wine", "digits", "breast_cancer", "iris", "heart_scale", "german.numer_scale"]
MADE = {  # by scikit-learn; no constant of ours was chosen by these
    "made 21": dict(n_samples=600, n_features=12, n_informative=5, class_sep=0.8, random_state=21),
    "made 22": dict(n_samples=900, n_features=20, n_informative=8, n_classes=4, n_clusters_per_class=1, class_sep=1.2,
                    random_state=22),
    "made 23": dict(n_samples=400, n_features=6, n_informative=3, n_redundant=1, weights=[0.8], random_state=23),
    "made 24": dict(n_samples=1000, n_features=30, n_informative=10, n_classes=3, class_sep=1.5, random_state=24),
    "made 25": dict(n_samples=2000, n_features=10, n_informative=4, n_redundant=0, n_clusters_per_class=1, class_sep=2.0,
                    random_state=25)}
TUNE = ["wine", "breast_cancer", "iris", "heart_scale", "german.numer_scale", *MADE]
INFLUENCE = ["wine", "breast_cancer", "iris", "diabetes", "heart_scale"]


def sets_called(options):
    """The sets of each job whose row the filter lets through."""
    return [(job, name) for job, names in (("clean", [*CLEAN, *MADE]), ("influence", INFLUENCE), ("tune", TUNE))
            for name in names
            if options.filter in f"{job} {name}"]


def run(options):
    asked = sets_called(options)
    if not asked or (options.peer and not {"cleanlab", "scikit-learn"} & set(options.peer)):
        return
    if not COMMAND.exists():
        sys.exit("peers: build/release/app/onestep is not built: cmake --build --preset release --target onestep_command")
    python = make_environment(PACKAGES)
    subprocess.run([python, SCRIPT, "--worker", "answers", json.dumps(asked), "1" if options.quick else str(SPLITS)],
                   env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}, check=True)


# ---- data ----


def load(name):
    import numpy as np
    from sklearn import datasets

    if hasattr(datasets, f"load_{name}"):
        data = getattr(datasets, f"load_{name}")()
        return name, data.data, data.target
    if shared_file(name).exists():
        A, y = datasets.load_svmlight_file(str(shared_file(name)))
        return name, A.toarray(), (y > np.min(y)).astype(int)
    if name in MADE:
        return name, *datasets.make_classification(**MADE[name])
    N, n, seed = {"heart_scale": (270, 13, 1), "german.numer_scale": (1000, 24, 2)}[name]
    A, y = datasets.make_classification(N, n, n_informative=6, class_sep=0.6, random_state=seed)
    return f"made as {name}", A, y


def write_csv(folder, name, A, y):
    path = f"{folder}/{name}.csv"
    with open(path, "w") as file:
        file.write(",".join(f"f{j}" for j in range(A.shape[1])) + ",target\n")
        for row, label in zip(A, y):
            file.write(",".join(repr(float(v)) for v in row) + f",{label}\n")
    return path


def ours(*arguments):
    """What the command answers, and its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([str(COMMAND), *arguments, "--json"], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # `clean` may answer that nothing can be said about the labels.
    if done.returncode != 0 and '"status": "undecided"' not in done.stdout:
        raise RuntimeError(f"onestep {arguments[0]}: status {done.returncode}: {done.stderr or done.stdout[:300]}")
    return json.loads(done.stdout), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# ---- clean ----


def flip(y, noise, random):
    import numpy as np

    classes, y = int(np.max(y)) + 1, y.copy()
    if noise == "class":
        of_class = [random.permutation(np.flatnonzero(y == k)) for k in range(0, classes, 2)]
        places = np.concatenate([members[:round(0.4 * len(members))] for members in of_class])
        y[places] = (y[places] + 1) % classes
    else:
        places = random.permutation(len(y))[:round(noise * len(y))]
        y[places] = (y[places] + 1 + random.integers(classes - 1, size=len(places))) % classes
    return y, np.isin(np.arange(len(y)), places)


def cleanlab(A, y, trusted, test):
    """Suspects, qualities, the accuracy of the model without suspects, CPU seconds. With trusted samples they join every
    fit, which CleanLearning has no way to say."""
    import numpy as np
    from cleanlab.classification import CleanLearning
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    model = lambda: LogisticRegression(C=1.0, max_iter=1000)
    begin = time.process_time()
    if trusted is None:
        learner = CleanLearning(model(), seed=0)
        learner.fit(A, y)
        issues = learner.get_label_issues()
        suspects, quality, fitted = issues["is_label_issue"].to_numpy(), issues["label_quality"].to_numpy(), learner
    else:
        p = np.zeros((len(y), int(np.max(y)) + 1))
        joined = lambda rows: (np.vstack([A[rows], trusted[0]]), np.append(y[rows], trusted[1]))
        for rows, held_out in StratifiedKFold(5, shuffle=True, random_state=0).split(A, y):
            p[held_out] = model().fit(*joined(rows)).predict_proba(A[held_out])
        suspects, quality = find_label_issues(y, p), get_label_quality_scores(y, p)
        fitted = model().fit(*joined(~suspects))
    seconds = time.process_time() - begin
    return suspects, quality, np.mean(fitted.predict(test[0]) == test[1]), seconds


def clean_once(folder, A, y, noise, split, with_trusted):
    import numpy as np
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import f1_score, roc_auc_score
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    train, test = train_test_split(np.arange(len(y)), test_size=0.3, random_state=split, stratify=y)
    trusted = None
    if with_trusted:
        train, trusted = train_test_split(train, test_size=0.2, random_state=split, stratify=y[train])
    A = StandardScaler().fit(A[train]).transform(A)
    noisy, flipped = flip(y[train], noise, np.random.default_rng(split))
    arguments = ["clean", write_csv(folder, "train", A[train], noisy), "--test", write_csv(folder, "test", A[test], y[test])]
    if with_trusted:
        arguments += ["--valid", write_csv(folder, "trusted", A[trusted], y[trusted])]
    # Whole-number targets of few values are classes; said, so that nothing is guessed.
    answer, seconds = ours(*arguments, "--loss", "logistic" if len(set(y)) == 2 else "softmax")
    undecided = answer["status"] == "undecided"  # then it names nobody, ranks nothing and leaves the samples as they are
    suspects = np.zeros(len(train), bool) if undecided else np.isin(
        answer["sample"], [suspect["sample"] for suspect in answer["suspects"]])
    both = (A[trusted], y[trusted]) if with_trusted else None
    theirs, quality, accuracy, their_seconds = cleanlab(A[train], noisy, both, (A[test], y[test]))
    start = (np.vstack([A[train], both[0]]), np.append(noisy, both[1])) if both else (A[train], noisy)
    nothing = LogisticRegression(C=1.0, max_iter=1000).fit(*start)
    as_it_is = np.mean(nothing.predict(A[test]) == y[test])
    return [f1_score(flipped, suspects, zero_division=0), f1_score(flipped, theirs),
            0.5 if undecided else roc_auc_score(~flipped, answer["quality"]), roc_auc_score(~flipped, quality),
            as_it_is if undecided else answer["scores"]["after"]["accuracy"], accuracy, as_it_is, seconds, their_seconds]


def clean_table(names, noise, splits):
    import numpy as np

    what = "two fifths of every other class labelled as the next" if noise == "class" else f"{noise:.0%} of the labels flipped"
    print(f"clean, {what}, means of {splits} splits (theirs: cleanlab, same model)")
    print(f"{'set':<20}  {'trusted':<7}  {'F1':>6} {'theirs':>6}  {'AUC':>6} {'theirs':>6}  {'test':>6} {'theirs':>6} "
          f"{'nothing':>7}  {'CPU s':>6} {'theirs':>6}  bars")
    held, count = 0, 0
    for with_trusted in (False, True):
        means = []
        for name in names:
            title, A, y = load(name)
            with tempfile.TemporaryDirectory() as folder:
                rows = np.array([clean_once(folder, A, y, noise, split, with_trusted) for split in range(splits)])
            m, error = rows.mean(axis=0), rows[:, 6].std(ddof=1) / np.sqrt(splits) if splits > 1 else 0.05
            means.append(m)
            bars = {"F1": m[0] >= m[1] - 0.01, "AUC": m[2] >= m[3] - 0.01, "test": m[4] >= m[6] - error, "time": m[7] <= m[8]}
            held, count = held + sum(bars.values()), count + len(bars)
            print(clean_line(title, with_trusted, m) + "  " + (" ".join(k for k, ok in bars.items() if not ok) or "pass"),
                  flush=True)
        print(clean_line("mean", with_trusted, np.mean(means, axis=0)))
    print(f"{held} of {count} bars hold; a name under bars is one that does not\n")


def clean_line(title, with_trusted, m):
    return (f"{title:<20}  {'yes' if with_trusted else 'no':<7}  {m[0]:6.3f} {m[1]:6.3f}  {m[2]:6.3f} {m[3]:6.3f}  {m[4]:6.3f} "
            f"{m[5]:6.3f} {m[6]:7.3f}  {m[7]:6.3f} {m[8]:6.3f}")


# ---- influence ----


def influence_row(name):
    """Every training sample left out in turn by scikit-learn, at full accuracy."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    title, A, y = load(name)
    quantity = len(set(y)) > 20
    train, valid = train_test_split(np.arange(len(y)), test_size=0.3, random_state=0, stratify=None if quantity else y)
    A = StandardScaler().fit(A[train]).transform(A)
    loss = "ridge" if quantity else "logistic" if len(set(y)) == 2 else "softmax"
    with tempfile.TemporaryDirectory() as folder:
        answer, seconds = ours("influence", write_csv(folder, "train", A[train], y[train]), "--valid",
                               write_csv(folder, "valid", A[valid], y[valid]), "--loss", loss)

    def loss_of(rows):
        if quantity:
            return np.mean(0.5 * (Ridge(alpha=1.0).fit(A[rows], y[rows]).predict(A[valid]) - y[valid]) ** 2)
        fitted = LogisticRegression(C=1.0, solver="newton-cg", tol=1e-10, max_iter=1000).fit(A[rows], y[rows])
        return -np.mean(fitted.predict_log_proba(A[valid])[np.arange(len(valid)), y[valid]])

    begin, all_of_them = time.process_time(), loss_of(train)
    actual = np.array([loss_of(np.delete(train, i)) for i in range(len(train))]) - all_of_them
    their_seconds = time.process_time() - begin
    removal, derivative = np.array(answer["removal"]), -np.array(answer["influence"])
    agreement = lambda p: (np.corrcoef(p, actual)[0, 1], p @ actual / (p @ p), np.linalg.norm(p - actual) / np.linalg.norm(actual))
    return title, len(train), agreement(removal), agreement(derivative), seconds, their_seconds


def influence_table(names):
    print("influence, predicted change of the validation loss beside training again without each sample (scikit-learn)")
    print(f"{'set':<20}  {'samples':>7}  {'removal: corr.':>14} {'slope':>6} {'error':>7}  {'derivative: corr.':>17} {'slope':>6} "
          f"{'error':>7}  {'CPU s':>6} {'theirs':>7}  bars")
    for name in names:
        title, count, removal, derivative, seconds, their_seconds = influence_row(name)
        bars = {"correlation": removal[0] >= 0.99, "slope": abs(removal[1] - 1) <= 0.01, "time": seconds <= their_seconds}
        print(f"{title:<20}  {count:>7}  {removal[0]:14.5f} {removal[1]:6.3f} {removal[2]:7.2%}  {derivative[0]:17.5f} "
              f"{derivative[1]:6.3f} {derivative[2]:7.2%}  {seconds:6.3f} {their_seconds:7.2f}  "
              + (" ".join(k for k, ok in bars.items() if not ok) or "pass"), flush=True)
    print()


# ---- tune ----


def tune_once(folder, A, y, split):
    """The loss of test samples with the penalty found (all features alike, each its own) and by LogisticRegressionCV, whose
    grid is finer and wider than its default; CPU seconds of each."""
    import numpy as np
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.metrics import log_loss
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    train, test = train_test_split(np.arange(len(y)), test_size=0.3, random_state=split, stratify=y)
    A = StandardScaler().fit(A[train]).transform(A)
    files = [write_csv(folder, "train", A[train], y[train]), "--test", write_csv(folder, "test", A[test], y[test])]
    loss = "logistic" if len(set(y)) == 2 else "softmax"
    shared, seconds = ours("tune", *files, "--hyper", "l2", "--loss", loss)
    each, each_seconds = ours("tune", *files, "--hyper", "l2-per-feature", "--loss", loss)
    begin = time.process_time()
    grid = LogisticRegressionCV(Cs=np.logspace(-5, 4, 19), cv=5, scoring="neg_log_loss", max_iter=1000).fit(A[train], y[train])
    their_seconds = time.process_time() - begin
    return [shared["test"]["loss"], log_loss(y[test], grid.predict_proba(A[test])), each["test"]["loss"], seconds, their_seconds,
            each_seconds]


def tune_table(names, splits):
    import numpy as np

    print(f"tune, mean loss of test samples, means of {splits} splits (theirs: LogisticRegressionCV, 19 penalties)")
    print(f"{'set':<20}  {'l2':>6} {'theirs':>6} {'per feature':>11}  {'CPU s':>6} {'theirs':>6} {'per feature':>11}  bars")
    for name in names:
        title, A, y = load(name)
        with tempfile.TemporaryDirectory() as folder:
            rows = np.array([tune_once(folder, A, y, split) for split in range(splits)])
        error = lambda column: rows[:, column].std(ddof=1) / np.sqrt(splits) if splits > 1 else 0.05
        m = rows.mean(axis=0)
        bars = {"l2": m[0] <= m[1] + error(1), "per feature": m[2] <= m[0] + error(0), "time": m[3] <= m[4]}
        print(f"{title:<20}  {m[0]:6.4f} {m[1]:6.4f} {m[2]:11.4f}  {m[3]:6.3f} {m[4]:6.2f} {m[5]:11.3f}  "
              + (", ".join(k for k, ok in bars.items() if not ok) or "pass"), flush=True)
    print()


def worker(asked, splits):
    warnings.filterwarnings("ignore")
    asked = json.loads(asked)
    names = lambda job: [name for which, name in asked if which == job]
    for noise in NOISE if names("clean") else []:
        clean_table(names("clean"), noise, int(splits))
    if names("influence"):
        influence_table(names("influence"))
    if names("tune"):
        tune_table(names("tune"), int(splits))
