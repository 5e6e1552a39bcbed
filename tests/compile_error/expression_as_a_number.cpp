// error: cannot convert .*Expr.* to .double.|no viable conversion from .*Expr.* .double.
#include <onestep/onestep.h>

using namespace onestep;

// The value exists only once the function runs: evaluate, or a Plan.
double total(const Expr& x) { return sum(x); }
