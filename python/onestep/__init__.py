"""Derivatives of what an iterative algorithm converges to.

Write the objective in NumPy, or one step of an algorithm; solve; and ask for dx/dtheta in either direction, and for how wrong
it can be.

    fit = onestep.newton(lambda x, w: np.sum(w * np.logaddexp(0, -y * (A @ x))) + 0.1 * np.sum(x**2))
    s = fit.solve(np.zeros(13), w)
    s.vjp(s.x), s.certificate(s.x)
"""

from __future__ import annotations

import importlib as _importlib
import typing as _typing

from onestep._core import Adam as Adam
from onestep._core import Auto as Auto
from onestep._core import Certificate as Certificate
from onestep._core import Context as Context
from onestep._core import DerivativeReport as DerivativeReport
from onestep._core import Descent as Descent
from onestep._core import Expr as Expr
from onestep._core import Factor as Factor
from onestep._core import ForeignStep as ForeignStep
from onestep._core import Function as Function
from onestep._core import GradientStep as GradientStep
from onestep._core import Implicit as Implicit
from onestep._core import Inner as Inner
from onestep._core import Iteration as Iteration
from onestep._core import KStep as KStep
from onestep._core import Lbfgs as Lbfgs
from onestep._core import ManySolutions as ManySolutions
from onestep._core import Momentum as Momentum
from onestep._core import OneStep as OneStep
from onestep._core import Outcome as Outcome
from onestep._core import OuterIteration as OuterIteration
from onestep._core import Parameter as Parameter
from onestep._core import Prepared as Prepared
from onestep._core import ProgramSolution as ProgramSolution
from onestep._core import Solution as Solution
from onestep._core import Solver as Solver
from onestep._core import Statistics as Statistics
from onestep._core import Status as Status
from onestep._core import Unrolled as Unrolled
from onestep._core import __version__ as __version__
from onestep._core import arbitrary as arbitrary
from onestep._core import cholesky as cholesky
from onestep._core import erf as erf
from onestep._core import eye as eye
from onestep._core import fixed_point as fixed_point
from onestep._core import grad as grad
from onestep._core import gradient_descent as gradient_descent
from onestep._core import gram as gram
from onestep._core import hessian as hessian
from onestep._core import hvp as hvp
from onestep._core import jacobian as jacobian
from onestep._core import jvp as jvp
from onestep._core import ldlt as ldlt
from onestep._core import log_sum_exp as log_sum_exp
from onestep._core import logdet as logdet
from onestep._core import lu as lu
from onestep._core import minimise as minimise
from onestep._core import newton as newton
from onestep._core import newton_cg as newton_cg
from onestep._core import newton_root as newton_root
from onestep._core import pad as pad
from onestep._core import quadratic_program as quadratic_program
from onestep._core import relu as relu
from onestep._core import set_threads as set_threads
from onestep._core import sigmoid as sigmoid
from onestep._core import signs_of as signs_of
from onestep._core import softplus as softplus
from onestep._core import solve_factored as solve_factored
from onestep._core import solve_many as solve_many
from onestep._core import solve_qp as solve_qp
from onestep._core import stop_gradient as stop_gradient
from onestep._core import threads as threads
from onestep._core import traced as traced
from onestep._core import vjp as vjp
from onestep._errors import Error as Error
from onestep._errors import FileError as FileError
from onestep._errors import MisuseError as MisuseError
from onestep._errors import NoDerivativeError as NoDerivativeError
from onestep._errors import NotConvergedError as NotConvergedError
from onestep._errors import TracingError as TracingError
from onestep._errors import WriteError as WriteError
from onestep._numpy import traced_functions as traced_functions

if _typing.TYPE_CHECKING:
    from onestep._data import ColumnEncoding as ColumnEncoding
    from onestep._data import Dataset as Dataset
    from onestep._data import QpsFile as QpsFile
    from onestep._data import read_csv as read_csv
    from onestep._data import read_dataset as read_dataset
    from onestep._data import read_idx as read_idx
    from onestep._data import read_libsvm as read_libsvm
    from onestep._data import read_qps as read_qps
    from onestep._models import LinearModel as LinearModel
    from onestep._models import read_model as read_model
    from onestep._progress import Progress as Progress

# What not every program needs is imported when it is first asked for.
_LATER = {
    "ColumnEncoding": "_data",
    "Dataset": "_data",
    "QpsFile": "_data",
    "read_csv": "_data",
    "read_dataset": "_data",
    "read_idx": "_data",
    "read_libsvm": "_data",
    "read_qps": "_data",
    "LinearModel": "_models",
    "Progress": "_progress",
    "read_model": "_models",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module 'onestep' has no attribute {name!r}")
    value = getattr(_importlib.import_module(f"onestep.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
