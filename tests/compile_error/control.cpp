// What the neighbouring files should have written: this one must compile, so that theirs fail for their own reason.
#include <onestep/onestep.h>

using namespace onestep;

Expr positive_part(const Expr& x) { return where(less(x, 0.0), 0.0, x); }

Expr total(const Expr& x) { return sum(x); }

Expr hinge(const Expr& z) { return sum(maximum(1.0 - z, 0.0)); }

Expr totals(const Expr& a) { return sum(a, 0) + max(a, Axis{0}) + sum(a, Axis{1}) + log_sum_exp(a, 0); }

Function f() {
  return trace([](const Expr& x) { return square(x); }, Shape{3});
}

double first(const Array& a) { return a.values()[0]; }

std::vector<double> entries(const Solution& s) { return s.x().values(); }

Workspace another(const Plan& plan) { return plan.workspace(); }

Expr newton_direction(const Expr& h, const Expr& g) { return solve(cholesky(h), g); }
