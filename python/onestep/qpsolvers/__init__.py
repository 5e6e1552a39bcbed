"""onestep as a solver of qpsolvers, whose solutions have derivatives. Importing this is what makes it known there.

import onestep.qpsolvers
solution = qpsolvers.solve_problem(qpsolvers.Problem(P, q, G, h), solver="onestep")
solution.x, solution.vjp(solution.x)["h"], solution.certificate(solution.x)
"""

from __future__ import annotations

try:
    import qpsolvers as _qpsolvers
except ImportError:
    raise ImportError("onestep.qpsolvers needs qpsolvers: pip install 'qpsolvers>=4'") from None
if int(_qpsolvers.__version__.split(".")[0]) < 4:
    raise ImportError(
        f"onestep.qpsolvers needs qpsolvers 4 or later, not {_qpsolvers.__version__}: pip install -U qpsolvers"
    )

from onestep.qpsolvers._problem import ParamError as ParamError
from onestep.qpsolvers._problem import ProblemError as ProblemError
from onestep.qpsolvers._solution import Solution as Solution
from onestep.qpsolvers._solve import register as register
from onestep.qpsolvers._solve import solve_problem as solve_problem
from onestep.qpsolvers._solve import solve_qp as solve_qp

register()
