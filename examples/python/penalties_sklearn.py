"""Penalties that are found by derivatives, in a pipeline of scikit-learn, beside a grid of one penalty."""

from sklearn.datasets import load_diabetes
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import onestep.sklearn

X, y = load_diabetes(return_X_y=True)
ours = make_pipeline(StandardScaler(), onestep.sklearn.Ridge())
grid = make_pipeline(StandardScaler(), RidgeCV(alphas=[0.01, 0.1, 1.0, 10.0, 100.0]))
scores = {name: cross_val_score(model, X, y, cv=5).mean() for name, model in (("onestep", ours), ("grid", grid))}
print("R² of unseen samples:", {name: round(float(score), 4) for name, score in scores.items()})
assert scores["onestep"] > scores["grid"] - 0.01
