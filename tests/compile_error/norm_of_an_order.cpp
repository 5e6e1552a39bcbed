// error: norm is the Euclidean norm, along an axis norm.a, Axis.1..; other norms are sum.abs.a..
#include <onestep/onestep.h>

using namespace onestep;

// NumPy's second argument is an order, ours an axis: sum(abs(x)).
Expr lasso(const Expr& x) { return norm(x, 1); }
