// Operations made of others: what problems are written with beside the rows of the table. Shapes, derivatives and flop
// counts are those of what they are made of.
#pragma once

#include <concepts>
#include <initializer_list>
#include <span>

#include "onestep/export.h"
#include "onestep/expr.h"

ONESTEP_EXPORT_BEGIN
namespace onestep {

/// Numbers as a vector, or vectors of one length as the rows (axis 0) or columns (axis 1) of a matrix.
///
///     Expr point = stack({cos(a), sin(a)}), basis = stack({u, v}, 1);
Expr stack(std::span<const Expr> parts, int axis = 0);
Expr stack(std::initializer_list<Expr> parts, int axis = 0);

/// Σ uᵢvᵢ of two vectors. Of matrices the product is matmul(A, B), the sum of products sum(A * B).
///
///     Expr work = dot(u, v);
Expr dot(const Expr& u, const Expr& v);

/// The mean of all entries, or along an axis. Throws MisuseError where there are none.
///
///     Expr average = mean(x), per_column = mean(A, 0);
Expr mean(const Expr& a);
Expr mean(const Expr& a, int axis);
inline Expr mean(const Expr& a, Axis axis) { return mean(a, axis.number); }
template <std::floating_point Number> Expr mean(const Expr& a, Number axis) = delete;  // an axis is a whole number

/// The product of all entries, or along an axis; of nothing it is 1. Its derivatives are exact where entries are zero.
/// Entries are multiplied in pairs, pairs of pairs and so on: nothing is promised about the range of partial products.
///
///     Expr likelihood = prod(x), per_row = prod(A, 1);
Expr prod(const Expr& a);
Expr prod(const Expr& a, int axis);
inline Expr prod(const Expr& a, Axis axis) { return prod(a, axis.number); }
template <std::floating_point Number> Expr prod(const Expr& a, Number axis) = delete;  // as for mean

/// max(a, 0), entry by entry. The derivative at 0 is 0; NaN stays NaN.
///
///     Expr hinge = sum(relu(1.0 - y * z));
inline Expr relu(const Expr& a) { return maximum(0.0, a); }
/// a, or the bound it exceeds. The derivative at a bound is a's. Throws MisuseError for numbers with low > high.
///
///     Expr inside = clip(x, 0.0, 1.0);
Expr clip(const Expr& a, const Expr& low, const Expr& high);

/// log Σ exp(a) over all entries or along an axis, without overflow: entries of ±700 and of minus infinity are fine, and of
/// nothing it is minus infinity. Its gradient is softmax.
///
///     Expr loss = sum(log_sum_exp(scores, 1) - sum(Y * scores, 1));   // of softmax regression, Y one-hot
Expr log_sum_exp(const Expr& a);
Expr log_sum_exp(const Expr& a, int axis);
inline Expr log_sum_exp(const Expr& a, Axis axis) { return log_sum_exp(a, axis.number); }
template <std::floating_point Number> Expr log_sum_exp(const Expr& a, Number axis) = delete;  // as for mean

/// The sum of the diagonal of a square matrix. (What makes a Function of a lambda is `traced`, in function.h.)
///
///     Expr degrees_of_freedom = trace(matmul(A, H));
Expr trace(const Expr& a);
/// The inverse of a square matrix. Where it is only multiplied with something, solve(lu(M), b) is faster and more accurate.
///
///     Expr covariance = inverse(H), same = inverse(cholesky(H));
Expr inverse(const Expr& m);
Expr inverse(const Factor& factor);

}  // namespace onestep
ONESTEP_EXPORT_END
