#include "support/dense.h"

#include <Eigen/Dense>

#include "onestep/eigen.h"

namespace onestep::test {
namespace {

using Eigen::MatrixXd;

MatrixXd in(const Array& a) { return to_eigen_matrix(a); }

Array out(const MatrixXd& m, const Shape& shape) {
  std::vector<double> entries;
  for (Eigen::Index i = 0; i < m.rows(); ++i)
    for (Eigen::Index j = 0; j < m.cols(); ++j) entries.push_back(m(i, j));
  return {shape, std::move(entries)};
}
// A column is a vector where its source was one.
Array out(const MatrixXd& m, bool as_vector) { return out(m, as_vector ? Shape{m.rows()} : Shape{m.rows(), m.cols()}); }

}  // namespace

Array plus(const Array& a, const Array& b) { return out(in(a) + in(b), a.shape()); }
Array minus(const Array& a, const Array& b) { return out(in(a) - in(b), a.shape()); }
Array times(double factor, const Array& a) { return out(factor * in(a), a.shape()); }
Array product(const Array& a, const Array& b) { return out(in(a) * in(b), b.shape().rank() < 2); }
Array transposed(const Array& a) { return out(in(a).transpose(), false); }
Array identity(std::int64_t n) { return out(MatrixXd::Identity(n, n), false); }
Array inverse(const Array& a) { return out(in(a).inverse(), false); }
Array solved(const Array& m, const Array& b) { return out(in(m).partialPivLu().solve(in(b)), b.shape()); }

double norm(const Array& a) { return in(a).norm(); }
double spectral_norm(const Array& a) {
  return a.size() == 0 ? 0.0 : Eigen::JacobiSVD<MatrixXd>(in(a)).singularValues()[0];
}
double relative_error(const Array& a, const Array& b) { return (in(a) - in(b)).norm() / in(b).norm(); }

Array with_eigenvalues(Random& random, const std::vector<double>& eigenvalues) {
  const auto n = static_cast<std::int64_t>(eigenvalues.size());
  const MatrixXd q = Eigen::HouseholderQR<MatrixXd>(in(random.array({n, n}))).householderQ();
  const MatrixXd m = q * Eigen::Map<const Eigen::VectorXd>(eigenvalues.data(), n).asDiagonal() * q.transpose();
  return out(0.5 * (m + m.transpose()), false);
}
Array with_norm(Random& random, std::int64_t rows, std::int64_t columns, double norm) {
  const Array m = random.array({rows, columns});
  return times(norm / spectral_norm(m), m);
}
std::vector<double> spread(double low, double high, std::int64_t n) {
  const Eigen::VectorXd v = Eigen::VectorXd::LinSpaced(n, low, high);
  return {v.begin(), v.end()};
}

Array flat(const Parts& parts) {
  std::vector<double> all;
  for (const Array& a : parts) {
    const Array dense = a.contiguous();
    all.insert(all.end(), dense.values().begin(), dense.values().end());
  }
  const Shape shape{static_cast<std::int64_t>(all.size())};
  return {shape, std::move(all)};
}
Array orthogonal_part(const Array& a, const Array& v) {
  MatrixXd rest = in(v);
  for (int twice = 0; twice < 2; ++twice) rest -= in(a) * in(a).householderQr().solve(rest);
  return out(rest, v.shape());
}

Array differences(const std::function<Array(double)>& f, double h) {
  const auto central = [&](double t) { return MatrixXd((in(f(t)) - in(f(-t))) / (2 * t)); };
  const MatrixXd a = central(h), b = central(h / 2), c = central(h / 4);
  const MatrixXd ab = b + (b - a) / 3, bc = c + (c - b) / 3;
  return out(bc + (bc - ab) / 15, f(0).shape());
}

}  // namespace onestep::test
