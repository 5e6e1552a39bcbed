// error: no match for .operator<.|invalid operands to binary expression
#include <onestep/onestep.h>

using namespace onestep;

// A comparison by operator would look like a branch: less(x, 0.0) is the expression.
Expr positive_part(const Expr& x) { return where(x < 0.0, 0.0, x); }
