// error: where.condition, a, b. chooses
#include <onestep/onestep.h>

#include <algorithm>
using namespace onestep;

// std::max compares now, when there is nothing to compare: maximum(a, b).
Expr larger(const Expr& a, const Expr& b) { return std::max(a, b); }
