"""onestep as a solver of CVXPYlayers, for problems whose canonical form is a quadratic program.

layer = CvxpyLayer(problem, parameters=[A, b], variables=[x], solver=onestep.cvxpylayers.QPSolver())
"""

from __future__ import annotations

try:
    import cvxpylayers as _cvxpylayers
except ImportError:
    raise ImportError("onestep.cvxpylayers needs CVXPYlayers: pip install 'cvxpylayers>=1.2'") from None
try:
    from cvxpylayers.interfaces.base import SolverInterface as _SolverInterface
except ImportError:
    _version = getattr(_cvxpylayers, "__version__", "an older one")
    raise ImportError(
        f"onestep.cvxpylayers needs CVXPYlayers 1.2 or later, not {_version}: pip install -U cvxpylayers"
    ) from None

from onestep.cvxpylayers._programs import SolverError as SolverError
from onestep.cvxpylayers._solver import QPSolver as QPSolver

del _SolverInterface
