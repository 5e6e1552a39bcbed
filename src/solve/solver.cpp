// Solvers as the values users hold: a start, options, constants and an equation of their own.
#include <fmt/format.h>

#include <cmath>
#include <ostream>

#include "solve/monitor.h"
#include "solve/recipe.h"

namespace onestep {

std::size_t Parts::checked(std::size_t i) const {
  if (i < parts_.size()) return i;
  throw MisuseError(fmt::format("[Parts] part {} of {}; they are counted from 0", i, parts_.size()));
}

const Array& Parts::only() const {
  if (parts_.size() != 1)
    throw MisuseError(fmt::format("[Parts] {} arrays where one is asked for; take them by their index", parts_.size()));
  return parts_.front();
}

std::ostream& operator<<(std::ostream& out, const Parts& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) out << (i == 0 ? "" : "\n") << parts[i];
  return out;
}

Solver Solver::from(Parts x0) const {
  detail::Recipe copy = detail::recipe_of(*this).start.call ? detail::recipe_of(*this).changed() : detail::recipe_of(*this);
  copy.start = {};
  copy.x0 = std::move(x0);
  return detail::solver_of(std::move(copy));
}
Solver Solver::from_body(detail::Body start) const {
  detail::Recipe copy = detail::recipe_of(*this).changed();
  copy.start = std::move(start);
  copy.x0.reset();
  return detail::solver_of(std::move(copy));
}
Solver Solver::with(SolveOptions options) const {
  detail::check(options);
  detail::Recipe copy = detail::recipe_of(*this);
  if (copy.for_unrolling) {
    detail::Recipe steps = *copy.for_unrolling;
    steps.options = options;
    copy.for_unrolling = std::make_shared<const detail::Recipe>(std::move(steps));
  }
  copy.options = std::move(options);
  return detail::solver_of(std::move(copy));
}
Solver Solver::on(const Context& context) const {
  // Plans are for one backend.
  const auto on_context = [&](const detail::Recipe& recipe) {
    detail::Recipe copy = recipe.context.backend() == context.backend() ? recipe : recipe.changed();
    copy.context = context;
    return copy;
  };
  detail::Recipe copy = on_context(detail::recipe_of(*this));
  if (copy.for_unrolling) copy.for_unrolling = std::make_shared<const detail::Recipe>(on_context(*copy.for_unrolling));
  return detail::solver_of(std::move(copy));
}
Solver Solver::knowing(Constants constants) const {
  for (const auto& [name, value] :
       {std::pair{"rho", constants.rho}, {"L_A", constants.L_A}, {"L_J", constants.L_J}, {"norm_B", constants.norm_B}})
    if (std::isnan(value)) throw MisuseError(fmt::format("[knowing] {} is not a number; leave out what is not known", name));
  detail::Recipe copy = detail::recipe_of(*this).changed();
  copy.known = constants;
  return detail::solver_of(std::move(copy));
}
Solver Solver::with_equation(detail::Body residual) const {
  detail::Recipe copy = detail::recipe_of(*this).changed();
  copy.equation = std::move(residual);
  copy.foreign_equation.reset();
  return detail::solver_of(std::move(copy));
}
Solver Solver::equation(ForeignStep residual) const {
  if (!residual.apply) throw MisuseError("[equation] a foreign equation needs its apply callback");
  detail::Recipe copy = detail::recipe_of(*this).changed();
  copy.equation = {};
  copy.foreign_equation = std::move(residual);
  return detail::solver_of(std::move(copy));
}

Function equation_of(const Solver& solver, const Parts& x0, const Parts& theta) {
  const detail::Recipe& recipe = detail::recipe_of(solver);
  std::vector<Shape> shapes;
  for (const Array& a : theta) shapes.push_back(a.shape());
  std::optional<Function> equation = recipe.ready(&x0, shapes).method->equation_graph();
  if (!equation)
    throw MisuseError(
        fmt::format("[equation_of] the equation of {} is not a graph; give it one with Solver::equation, as a "
                    "lambda of expressions",
                    recipe.name));
  return *std::move(equation);
}

}  // namespace onestep
