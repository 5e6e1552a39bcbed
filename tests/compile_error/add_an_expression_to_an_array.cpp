// error: no match for .operator\+=.|invalid operands|no viable overloaded
#include <onestep/onestep.h>

using namespace onestep;

// An array has entries, an expression none yet.
void add(Array& a, const Expr& x) { a += x; }
