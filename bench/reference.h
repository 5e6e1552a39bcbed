// Long-hand arithmetic that every contender is held to: plain loops on doubles, no BLAS, no vectors, no graph.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "data.h"

namespace onestep::bench {

// The largest difference of two entries, relative to the largest entry of `expected`; infinite where one is NaN.
double difference(std::span<const double> actual, std::span<const double> expected);

// Throws unless the two agree to `tolerance` of the largest entry of `expected`.
void must_agree(std::string_view what, std::span<const double> actual, std::span<const double> expected,
                double tolerance = 1e-10);

// Throws unless x with the multipliers y and z (>= 0) satisfies all optimality conditions of the program to `tolerance`,
// relative to the largest term of each.
void must_solve(const DenseQp& qp, std::span<const double> x, std::span<const double> y, std::span<const double> z,
                double tolerance);

// f(x, w), the Newton step x - H⁻¹g from data.x, and the step's reverse derivative (dx_next/dw)ᵀ v for data.v. The two
// linear systems are solved by conjugate gradients on products with A, so that no n x n matrix, and none of its mistakes, is
// shared with what is checked.
struct NewtonReference {
  double value;
  std::vector<double> x_next;
  std::vector<double> w_bar;
};
NewtonReference newton_reference(const Logistic& data);

// x - alpha (Aᵀ(A x - y) + lambda x) from data.x.
std::vector<double> ridge_reference(const Logistic& data, double lambda, double alpha);

// After `steps` gradient steps of length alpha from 0 for sum(w * square(A x - y)) / 2 + lambda * sum(square(x)) / 2: x, and
// its derivative in the direction v of the weights.
struct DescentReference {
  std::vector<double> x, dx;
};
DescentReference descent_reference(const Logistic& data, double lambda, double alpha, int steps, std::span<const double> v);

// sqrt(1 + square(tanh(a * x + b))) * exp(x)
std::vector<double> chain_reference(double a, double b, std::span<const double> x);

}  // namespace onestep::bench
