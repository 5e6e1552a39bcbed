// error: call sin.x., exp.x., pow.x, y. without std::
#include <onestep/onestep.h>

#include <cmath>
using namespace onestep;

Expr cube(const Expr& x) { return std::pow(x, 3.0); }
