// The derivative that a certificate is about: the one that was returned last, where it was asked for in the same direction.
#include <algorithm>

#include "estimate/certify.h"

namespace onestep::detail {
namespace {
bool is_kept(const SolutionState& s) { return s.returned.allow_unconverged == s.allow_unconverged; }
}  // namespace

std::vector<std::vector<double>> returned_vjp(SolutionState& s, ConstVector v, int& products) {
  s.report = s.returned.of_vjp;
  if (!v.empty() && is_kept(s) && std::ranges::equal(s.returned.cotangent, v)) return s.returned.vjp;
  std::vector<std::vector<double>> g = memory_for(s.method->best_step().parameters);
  s.report = {.method = s.differentiator->name()};
  s.differentiator->vjp(s, v, std::vector<Vector>(g.begin(), g.end()));
  products += s.report.products;
  return g;
}

std::vector<double> returned_jvp(SolutionState& s, std::span<const Array> v, int& products) {
  const std::vector<double> flat = flat_tangent(v);
  s.report = s.returned.of_jvp;
  if (!flat.empty() && is_kept(s) && flat == s.returned.tangent) return s.returned.jvp;
  std::vector<double> g(s.size());
  s.report = {.method = s.differentiator->name()};
  s.differentiator->jvp(s, v, g);
  products += s.report.products;
  return g;
}

}  // namespace onestep::detail
