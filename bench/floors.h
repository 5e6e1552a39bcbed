// The floors: the work of each row written by hand, as well as anybody would with the same BLAS. The suite holds their
// results to reference.h before it times them, so that a wrong floor cannot be fast.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "data.h"

namespace onestep::bench {

// Puts BLAS on one thread, which is how the floors call it, and on the kernels of this CPU. To be called first in main.
void prepare_blas();

// One Newton step for the f of data.h, from its x: value, gradient, Hessian, Cholesky, solve.
class NewtonFloor {
 public:
  virtual ~NewtonFloor() = default;
  virtual void step() = 0;
  const double& value() const { return value_; }
  const std::vector<double>& x_next() const { return x_next_; }

 protected:
  explicit NewtonFloor(const Logistic& data) : data_(data), x_next_(data.n) {}

  const Logistic& data_;
  double value_ = 0;
  std::vector<double> x_next_;
};

// BLAS on row blocks, or a kernel for the size where n is 5 or 10. `data` must outlive it.
std::unique_ptr<NewtonFloor> newton_floor(const Logistic& data);

// Newton's method by these steps: so many full ones from a start. Leaves x_{k-1} in the data.
class FloorNewton {
 public:
  FloorNewton(Logistic& data, std::vector<double> start, int iterations)
      : data_(data), start_(std::move(start)), floor_(newton_floor(data)), iterations_(iterations) {}
  void run();
  const std::vector<double>& x() const { return floor_->x_next(); }

 private:
  Logistic& data_;
  std::vector<double> start_;
  std::unique_ptr<NewtonFloor> floor_;
  int iterations_;
};

// A gradient step of ridge regression, x - alpha (H x - b) with H = AᵀA + lambda I and b = Aᵀy made beforehand, n = 12.
class RidgeFloor {
 public:
  RidgeFloor(const Logistic& data, double lambda, double alpha);
  void step();
  const std::vector<double>& x_next() const { return x_next_; }

 private:
  double alpha_;
  std::vector<double> H_, b_, x_, x_next_;
};

// Aᵀ(A v) for A of N x n and v of n x k, all row-major: the products of a Hessian of softmax regression with k classes, and
// nothing else of it. Row blocks on all threads, both products on a block while it is in cache. `A` must outlive it.
class NarrowProductsFloor {
 public:
  NarrowProductsFloor(const std::vector<double>& A, std::size_t N, std::size_t n, std::size_t k);
  void run(const std::vector<double>& v);
  const std::vector<double>& result() const { return sums_.front(); }

 private:
  const std::vector<double>& A_;
  std::size_t N_, n_, k_;
  std::vector<std::vector<double>> sums_, products_;  // of each thread
};

// sqrt(1 + square(tanh(a * x + b))) * exp(x) on every entry. `x` must outlive it.
class ChainFloor {
 public:
  ChainFloor(double a, double b, const std::vector<double>& x);
  void run();
  const std::vector<double>& result() const { return result_; }

 private:
  double a_, b_;
  const std::vector<double>& x_;
  std::vector<double> result_;
};

}  // namespace onestep::bench
