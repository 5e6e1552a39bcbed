// What the neighbouring files should have written: this one must compile, so that theirs fail for their own reason.
#include <onestep/onestep.h>

using namespace onestep;

Expr positive_part(const Expr& x) { return where(x < 0.0, 0.0, x); }

Expr penalty(const Expr& x, bool with_penalty) { return with_penalty ? sum(square(x)) : 0.0; }

Expr entries(const Expr& x) { return x[0] + x[-1] + sum(x[{1, -1}]) + sin(x[1]) * pow(x[2], 3.0); }

Expr inside(const Expr& x) { return where((x > 0.0) * (x < 1.0), x, 0.0); }

double gradient(const Solution& s) { return s.vjp(1.0); }

Solution fitted(const Solver& solver) { return solve(solver, {{0.1, 0.2}, 0.5}, {Array(0.1), Array(0.1)}); }

Array difference(const Array& a, const Array& b) { return a - b; }

Expr total(const Expr& x) { return sum(x); }

Expr hinge(const Expr& z) { return sum(maximum(1.0 - z, 0.0)); }

Expr totals(const Expr& a) { return sum(a, 0) + max(a, Axis{0}) + sum(a, Axis{1}) + log_sum_exp(a, 0); }

Function f() {
  return traced([](const Expr& x) { return square(x); }, Shape{3});
}

double first(const Array& a) { return a.values()[0]; }

std::vector<double> entries(const Solution& s) { return s.x().values(); }

Workspace another(const Plan& plan) { return plan.workspace(); }

Expr newton_direction(const Expr& h, const Expr& g) { return solve(cholesky(h), g); }
