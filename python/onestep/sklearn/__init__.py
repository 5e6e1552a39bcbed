"""Linear models for scikit-learn whose penalties are found by hypergradients, and that say what each sample does.

    model = onestep.sklearn.LogisticRegression().fit(X, y)
    model.penalty_, model.coef_, model.predict_proba(X_new)
"""

from __future__ import annotations

try:
    import sklearn as _sklearn
except ImportError:
    raise ImportError("onestep.sklearn needs scikit-learn: pip install 'scikit-learn>=1.6'") from None
if tuple(int(part) for part in _sklearn.__version__.split(".")[:2]) < (1, 6):
    raise ImportError(f"onestep.sklearn needs scikit-learn 1.6 or later, not {_sklearn.__version__}: pip install -U scikit-learn")

from onestep.sklearn._file import from_model as from_model
from onestep.sklearn._influence import Influence as Influence
from onestep.sklearn._influence import Retrained as Retrained
from onestep.sklearn._logistic import LogisticRegression as LogisticRegression
from onestep.sklearn._ridge import Ridge as Ridge
from onestep.sklearn._suspects import BeforeAndAfter as BeforeAndAfter
from onestep.sklearn._suspects import Suspects as Suspects
from onestep.sklearn._tuning import PenaltySearch as PenaltySearch
from onestep.sklearn._tuning import Spread as Spread
