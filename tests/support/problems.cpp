// Logistic regression by long-hand derivatives and Newton's method.
#include "support/problems.h"

#include <cmath>

namespace onestep::test {
namespace {

// σ(-yᵢ aᵢᵀx)
std::vector<double> slopes(const Logistic& p, const Array& x) {
  const Array z = product(p.A, x);
  std::vector<double> s;
  for (std::int64_t i = 0; i < z.size(); ++i) s.push_back(1 / (1 + std::exp(p.y(i) * z(i))));
  return s;
}
// A with each row times a number.
Array scaled_rows(const Array& A, const std::vector<double>& factors) {
  std::vector<double> entries = entries_of(A);
  const std::size_t n = entries.size() / factors.size();
  for (std::size_t i = 0; i < entries.size(); ++i) entries[i] *= factors[i / n];
  return {A.shape(), std::move(entries)};
}
Array gradient(const Logistic& p, const Array& x, const Array& w) {
  std::vector<double> s = slopes(p, x);
  for (std::size_t i = 0; i < s.size(); ++i) s[i] *= -w(static_cast<std::int64_t>(i)) * p.y(static_cast<std::int64_t>(i));
  const Shape rows{static_cast<std::int64_t>(s.size())};
  return plus(product(transposed(p.A), Array(rows, s)), times(0.2, x));
}
Array hessian(const Logistic& p, const Array& x, const Array& w) {
  std::vector<double> s = slopes(p, x);
  for (std::size_t i = 0; i < s.size(); ++i) s[i] *= w(static_cast<std::int64_t>(i)) * (1 - s[i]);
  return plus(product(transposed(p.A), scaled_rows(p.A, s)), times(0.2, identity(x.size())));
}

}  // namespace

Logistic::Logistic(Random& random, std::int64_t rows, std::int64_t n) : A(random.array({rows, n})) {
  std::vector<double> labels;
  for (std::int64_t i = 0; i < rows; ++i) labels.push_back(random.flip() ? 1.0 : -1.0);
  y = Array(Shape{rows}, labels);
}

Array Logistic::solution(const Array& w) const {
  Array x = start();
  for (int k = 0; k < 30; ++k) x = minus(x, solved(hessian(*this, x, w), gradient(*this, x, w)));
  return x;
}

Array Logistic::derivative(const Array& w) const {
  const Array x = solution(w);
  std::vector<double> s = slopes(*this, x);
  for (std::size_t i = 0; i < s.size(); ++i) s[i] *= y(static_cast<std::int64_t>(i));
  return solved(hessian(*this, x, w), transposed(scaled_rows(A, s)));
}

}  // namespace onestep::test
