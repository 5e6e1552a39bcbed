// error: use maximum
#include <onestep/onestep.h>

using namespace onestep;

Expr larger(const Expr& a, const Expr& b) { return max(a, b); }
