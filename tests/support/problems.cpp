#include "support/problems.h"

#include <Eigen/Dense>

#include "onestep/eigen.h"

namespace onestep::test {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;

struct Parts {
  MatrixXd a;
  Eigen::ArrayXd y, w;
  explicit Parts(const Logistic& p, const Array& weights)
      : a(to_eigen_matrix(p.A)), y(to_eigen_vector(p.y).array()), w(to_eigen_vector(weights).array()) {}
  // σ(-y aᵀx)
  Eigen::ArrayXd slope(const VectorXd& x) const { return 1 / (1 + (y * (a * x).array()).exp()); }
  VectorXd gradient(const VectorXd& x) const { return -(a.transpose() * (w * y * slope(x)).matrix()) + 0.2 * x; }
  MatrixXd hessian(const VectorXd& x) const {
    const Eigen::ArrayXd s = slope(x);
    return a.transpose() * (w * s * (1 - s)).matrix().asDiagonal() * a + 0.2 * MatrixXd::Identity(x.size(), x.size());
  }
  VectorXd solution() const {
    VectorXd x = VectorXd::Zero(a.cols());
    for (int k = 0; k < 30; ++k) x -= hessian(x).llt().solve(gradient(x));
    return x;
  }
};

Array copy(const MatrixXd& m, const Shape& shape) {
  const Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> rows = m;
  return {shape, std::vector<double>(rows.data(), rows.data() + rows.size())};
}

}  // namespace

Logistic::Logistic(Random& random, std::int64_t rows, std::int64_t n) : A(random.array({rows, n})) {
  std::vector<double> labels;
  for (std::int64_t i = 0; i < rows; ++i) labels.push_back(random.flip() ? 1.0 : -1.0);
  y = Array(Shape{rows}, labels);
}

Array Logistic::solution(const Array& w) const {
  const VectorXd x = Parts(*this, w).solution();
  return copy(x, {x.size()});
}

Array Logistic::derivative(const Array& w) const {
  const Parts p(*this, w);
  const VectorXd x = p.solution();
  const MatrixXd mixed = -(p.a.transpose() * (p.y * p.slope(x)).matrix().asDiagonal());
  return copy(-p.hessian(x).llt().solve(mixed), {x.size(), p.w.size()});
}

}  // namespace onestep::test
