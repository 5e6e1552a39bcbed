// error: call sin.x., exp.x., pow.x, y. without std::
#include <onestep/onestep.h>

#include <cmath>
using namespace onestep;

// <cmath> knows numbers: the sine of an expression is sin(x).
Expr wave(const Expr& x) { return std::sin(x); }
