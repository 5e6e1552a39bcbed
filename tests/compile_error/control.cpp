// What the neighbouring files should have written: this one must compile, so that theirs fail for their own reason.
#include <onestep/onestep.h>

using namespace onestep;

Expr positive_part(const Expr& x) { return where(less(x, 0.0), 0.0, x); }

Expr total(const Expr& x) { return sum(x); }

Function f() {
  return trace([](const Expr& x) { return square(x); }, Shape{3});
}

double first(const Array& a) { return a.values()[0]; }

Workspace another(const Plan& plan) { return plan.workspace(); }

Expr newton_direction(const Expr& h, const Expr& g) { return solve(cholesky(h), g); }
