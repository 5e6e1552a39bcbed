// Eigen's vectors and matrices as arrays and back. Not part of onestep.h: include it where you use Eigen.
#pragma once

#include <Eigen/Core>
#include <span>
#include <string>
#include <type_traits>

#include "onestep/array.h"
#include "onestep/export.h"

ONESTEP_EXPORT_BEGIN
namespace onestep {

/// A vector or matrix of Eigen seen as an Array, without a copy: storage order and strides are kept. It must stay where it
/// is as long as the array and every function traced over it. Expressions (a + b) and blocks have to be evaluated first.
///
///     Eigen::MatrixXd A(270, 13);
///     Array a = view(A);
template <class Derived> Array view(const Eigen::PlainObjectBase<Derived>& m) {
  static_assert(std::is_same_v<typename Derived::Scalar, double>,
                "onestep computes with double; cast first: m.cast<double>().eval()");
  if constexpr (Derived::IsVectorAtCompileTime)
    return Array::view(std::span<const double>(m.data(), static_cast<std::size_t>(m.size())));
  else
    return Array::view(MatrixView{m.data(), m.rows(), m.cols(), Derived::IsRowMajor ? m.outerStride() : 1,
                                  Derived::IsRowMajor ? 1 : m.outerStride()});
}
/// A temporary would leave the array without memory.
template <class Derived> Array view(const Eigen::PlainObjectBase<Derived>&& m) = delete;

/// A copy of a vector or number as Eigen's. Throws MisuseError for a matrix.
///
///     Eigen::VectorXd g = to_eigen_vector(x);
inline Eigen::VectorXd to_eigen_vector(const Array& a) {
  if (a.shape().rank() == 2)
    throw MisuseError("[to_eigen_vector] " + to_string(a.shape()) + " is a matrix; use to_eigen_matrix");
  Eigen::VectorXd v(a.size());
  for (std::int64_t i = 0; i < a.size(); ++i) v[i] = a.data()[i * a.row_stride()];
  return v;
}

/// A copy of a matrix as Eigen's; a vector becomes a column.
///
///     Eigen::MatrixXd H = to_eigen_matrix(A);
inline Eigen::MatrixXd to_eigen_matrix(const Array& a) {
  Eigen::MatrixXd m(a.shape()[0], a.shape()[1]);
  for (std::int64_t i = 0; i < m.rows(); ++i)
    for (std::int64_t j = 0; j < m.cols(); ++j) m(i, j) = a.data()[i * a.row_stride() + j * a.column_stride()];
  return m;
}

}  // namespace onestep
ONESTEP_EXPORT_END
