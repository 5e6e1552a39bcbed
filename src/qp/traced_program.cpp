// The blocks of a traced quadratic program in their full shapes.
#include "qp/traced_program.h"

#include <fmt/format.h>

#include "graph/graph.h"

namespace onestep::detail {

namespace {
std::array<Expr, blocks> blocks_of(const TracedProgram& t) { return {t.Q, t.q, t.A, t.b, t.G, t.l, t.u, t.lo, t.hi}; }
}  // namespace

Sizes sizes_of(const TracedProgram& t) {
  Sizes s;
  const std::array<std::pair<const Expr*, int>, 6> tell_n{
      {{&t.Q, 2}, {&t.A, 2}, {&t.G, 2}, {&t.q, 1}, {&t.lo, 1}, {&t.hi, 1}}};
  for (const auto& [e, rank] : tell_n)
    if (s.n == 0 && e->shape().rank() == rank) s.n = e->shape()[rank - 1];
  if (s.n == 0)
    throw MisuseError(
        "[quadratic_program] nothing says how many variables there are: give Q, A or G as a matrix, or q as a vector");
  if (t.A.shape().rank() == 2) s.m = t.A.shape()[0];
  if (t.G.shape().rank() == 2) s.p = t.G.shape()[0];
  return s;
}

Body body_of(const ProgramBody& program) {
  return {[call = program.call](std::span<const Expr> theta) {
            const std::array<Expr, blocks> given = blocks_of(call(theta));
            return std::vector<Expr>(given.begin(), given.end());
          },
          program.arguments};
}

TracedProgram program_of(std::span<const Expr> given) {
  return {given[0], given[1], given[2], given[3], given[4], given[5], given[6], given[7], given[8]};
}

std::array<Shape, blocks> shapes_of(const Sizes& s) {
  return {Shape{s.n, s.n}, Shape{s.n}, Shape{s.m, s.n}, Shape{s.m}, Shape{s.p, s.n},
          Shape{s.p},      Shape{s.p}, Shape{s.n},      Shape{s.n}};
}

std::vector<Expr> full_blocks(const TracedProgram& t, const Sizes& s) {
  const std::array<Shape, blocks> shapes = shapes_of(s);
  const std::array<Expr, blocks> given = blocks_of(t);
  std::vector<Expr> result;
  for (std::size_t i = 0; i < blocks; ++i) {
    const bool is_number = given[i].shape().rank() == 0;
    if (is_number && shapes[i].rank() == 2 && !is_literal(given[i], 0))
      throw MisuseError(
          fmt::format("[quadratic_program] {} is a number, a matrix is needed, such as number * eye(n)", block_names[i]));
    if (given[i].shape().rank() == 1 && shapes[i].rank() == 2)
      throw MisuseError(
          fmt::format("[quadratic_program] {} is a vector, a matrix is needed; one with a single row is "
                      "reshape(vector, {{1, {}}})",
                      block_names[i], s.n));
    if (given[i].shape() != shapes[i] && !is_number)
      throw MisuseError(
          fmt::format("[quadratic_program] {} has shape {}, {} is needed for {} variables, {} equalities and {} rows",
                      block_names[i], to_string(given[i].shape()), to_string(shapes[i]), s.n, s.m, s.p));
    result.push_back(broadcast(given[i], shapes[i]));
  }
  return result;
}

}  // namespace onestep::detail
