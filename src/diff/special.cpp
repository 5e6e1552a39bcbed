// The operations that are neither elementwise nor linear.
#include <fmt/format.h>

#include "diff/rules.h"

namespace onestep {
namespace {

Expr rows(const Expr& d, const Shape& to) { return broadcast(reshape(d, {d.shape()[0], 1}), to); }

// max along an axis: the entries that attain it share the derivative. 1 where they do, and one over how many there are.
struct Ties {
  Expr mask;
  Expr weight;
};
Expr along(const Site& s, const Expr& e) {
  return broadcast(s.attr.i == 1 ? reshape(e, {s[0].shape()[0], 1}) : e, s[0].shape());
}
Expr reduce(const Site& s, const Expr& e) { return build(Op::sum, {e}, s.attr); }
Ties ties(const Expr& y, const Site& s) {
  const Expr mask = equal(s[0], along(s, y));
  return {mask, 1.0 / reduce(s, mask)};
}

Expr solve_like(const Site& s, const Expr& b, bool transposed) { return build(Op::solve, {s[0], b}, {.i = transposed}); }
Expr inverse(const Site& s) { return build(Op::solve, {s[0], eye(s[0].shape()[0])}); }

Expr call_node(const Site& s, std::vector<Expr> extra, std::int64_t kind, const Shape& shape) {
  std::vector<Expr> args = s.args;
  args.insert(args.end(), extra.begin(), extra.end());
  return build(Op::call, args, {.i = s.attr.i, .j = kind}, shape);
}
const Foreign& foreign(const Site& s) { return *s[0].graph()->foreign(s.attr.i); }
[[noreturn]] void no_second(const Site& s) {
  throw Error(
      fmt::format("[call] the derivative of {} cannot be differentiated again; write it with traced operations for that",
                  foreign(s).name()));
}

}  // namespace

std::optional<Expr> special_forward(const Expr& y, const Site& s, std::span<const std::optional<Expr>> t) {
  switch (s.op) {
    case Op::gram: {  // ȦᵀDA + AᵀDȦ
      const Expr half = matmul(transpose(*t[0]), rows(s[1], s[0].shape()) * s[0]);
      // The transpose of a product would be rewritten to a second product.
      return half + (is(half, Op::matmul) ? build_as_is(Op::transpose, {half}) : transpose(half));
    }
    case Op::max: {
      if (s[0].shape().size() == 0) return std::nullopt;  // minus infinity, which does not move
      const Ties tie = ties(y, s);
      return tie.weight * reduce(s, where(tie.mask, *t[0], 0.0));
    }
    case Op::cholesky:
    case Op::lu:
    case Op::ldlt: return t[0];
    case Op::solve: {  // ẋ = M⁻¹(ḃ - Ṁ x): one solve for both
      const Expr moved = matmul(s.attr.i != 0 ? transpose(*t[0]) : *t[0], y);
      return solve_like(s, t[1] ? *t[1] - moved : -moved, s.attr.i != 0);
    }
    case Op::logdet: return sum(transpose(inverse(s)) * *t[0]);
    case Op::call: {
      if (s.attr.j != 0) no_second(s);
      if (!foreign(s).has_jvp())
        throw Error(
            fmt::format("[call] {} has no jvp; override jvp and has_jvp, or differentiate in reverse", foreign(s).name()));
      std::vector<Expr> tangents;
      for (std::size_t i = 0; i < t.size(); ++i) tangents.push_back(t[i] ? *t[i] : broadcast(0.0, s[i].shape()));
      return call_node(s, tangents, 1, y.shape());
    }
    default: return std::nullopt;  // input, constant, scalar, eye: nothing to differentiate
  }
}

std::optional<Expr> special_backward(const Expr& y, const Site& s, int which, const Expr& c) {
  switch (s.op) {
    case Op::gram: return rows(s[1], s[0].shape()) * matmul(s[0], c + transpose(c));
    case Op::max: {
      const Ties tie = ties(y, s);
      return along(s, tie.weight) * where(tie.mask, along(s, c), 0.0);  // a NaN has no ties: its weight is infinite
    }
    case Op::cholesky:
    case Op::lu:
    case Op::ldlt: return c;
    case Op::solve: {  // M̄ = -w xᵀ with Mᵀ w = x̄, kept as an outer product
      const bool transposed = s.attr.i != 0;
      const Expr w = solve_like(s, c, !transposed);
      const Expr left = transposed ? y : w, right = transposed ? w : y;
      return -(y.shape().rank() == 1 ? outer(left, right) : matmul(left, transpose(right)));
    }
    case Op::logdet: return c * transpose(inverse(s));
    case Op::call:
      if (s.attr.j != 0) no_second(s);
      if (!foreign(s).has_vjp())
        throw Error(
            fmt::format("[call] {} has no vjp; override vjp and has_vjp, or differentiate forward", foreign(s).name()));
      return call_node(s, {c}, 2 + which, s[static_cast<std::size_t>(which)].shape());
    default: return std::nullopt;
  }
}

}  // namespace onestep
