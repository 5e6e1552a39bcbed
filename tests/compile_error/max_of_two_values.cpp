// error: use maximum
#include <onestep/onestep.h>

using namespace onestep;

// NumPy's max takes an axis as its second argument: the hinge loss needs maximum.
Expr hinge(const Expr& z) { return sum(max(1.0 - z, 0.0)); }
