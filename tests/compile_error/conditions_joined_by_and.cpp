// error: where.condition, a, b. chooses
#include <onestep/onestep.h>

using namespace onestep;

// Both hold where their product is 1: (x > 0.0) * (x < 1.0).
Expr inside(const Expr& x) { return where(x > 0.0 && x < 1.0, x, 0.0); }
