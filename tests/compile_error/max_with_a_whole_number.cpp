// error: use maximum
#include <onestep/onestep.h>

using namespace onestep;

// Zero is meant as a value here, not as an axis.
Expr hinge(const Expr& z) { return sum(max(1.0 - z, 0)); }
