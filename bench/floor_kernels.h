// The loops of the floors that BLAS does not have, vectorised with Highway and its own vector math, chosen at run time for
// the CPU as in the library.
#pragma once

#include <cstddef>

namespace onestep::bench {

// For rows with products t = A x, labels y (+1 or -1) and weights w: r, the derivative of w softplus(-y t) by t, and q, the
// square root of the second one. Returns the sum of w softplus(-y t).
double logistic_terms(std::size_t rows, const double* t, const double* y, const double* w, double* r, double* q);

// scaled = diag(q) A, all row-major.
void scale_rows(std::size_t rows, std::size_t n, const double* A, const double* q, double* scaled);

// to += from
void add_to(std::size_t count, const double* from, double* to);

// sqrt(1 + square(tanh(a * x + b))) * exp(x): multiply, add, tanh, square, add, sqrt, exp, multiply.
void chain(std::size_t count, double a, double b, const double* x, double* out);

// The whole Newton step of the logistic problem for n = 5 or n = 10. `columns` is A by columns, column j at columns + j *
// stride; `stride` is a multiple of 8 and so are the entries it allows to read in y, which are zero past N. Returns f(x, w).
double small_newton_step(std::size_t N, std::size_t n, const double* columns, std::size_t stride, const double* y,
                         const double* w, std::size_t first_penalised, const double* x, double* x_next);

// x - alpha (H x - b) for n = 12.
void ridge_step(const double* H, const double* b, double alpha, const double* x, double* x_next);

}  // namespace onestep::bench
