// error: use minimum
#include <onestep/onestep.h>

using namespace onestep;

Expr capped(const Expr& x) { return min(x, 1); }
