// error: an index is a whole number known while tracing
#include <onestep/onestep.h>

using namespace onestep;

// How many entries are positive is not known while tracing: sum(where(x > 0.0, x, 0.0)).
Expr sum_of_positive(const Expr& x) { return sum(x[x > 0.0]); }
