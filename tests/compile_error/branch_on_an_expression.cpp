// error: where.condition, a, b. chooses
#include <onestep/onestep.h>

using namespace onestep;

// An expression has no value while the function is traced: where(condition, a, b) chooses, a branch cannot.
Expr positive_part(const Expr& x) { return less(x, 0.0) ? Expr(0.0) : x; }
