// Eigen's storage seen through onestep, and back.
#include "onestep/eigen.h"

#include <gtest/gtest.h>

#include "onestep/onestep.h"

namespace onestep {
namespace {

using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

TEST(Eigen, MatricesOfBothStorageOrdersAreSeenWithoutACopy) {
  const Eigen::MatrixXd columns = Eigen::MatrixXd::Random(4, 3);
  const RowMajor rows = columns;
  const Array a = view(columns), b = view(rows);
  EXPECT_EQ(a.data(), columns.data());
  EXPECT_EQ(b.data(), rows.data());
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 3; ++j) {
      EXPECT_EQ(a(i, j), columns(i, j));
      EXPECT_EQ(b(i, j), columns(i, j));
    }
}

TEST(Eigen, ProductsWithColumnMajorDataAgreeWithEigen) {
  const Eigen::MatrixXd m = Eigen::MatrixXd::Random(40, 7);
  const Eigen::VectorXd x = Eigen::VectorXd::Random(7);
  const Array a = view(m);
  const Function f = traced([&](Expr v) { return std::pair(matmul(a, v), matmul(transpose(a), matmul(a, v))); }, Shape{7});
  const std::vector<Array> y = evaluate(f, std::vector<Array>{view(x)});
  EXPECT_LE((to_eigen_vector(y[0]) - m * x).norm(), 1e-14 * m.norm() * x.norm());
  EXPECT_LE((to_eigen_vector(y[1]) - m.transpose() * (m * x)).norm(), 1e-14 * m.norm() * m.norm() * x.norm());
}

TEST(Eigen, ArraysComeBackAsTheyAre) {
  const Array m{{1, 2, 3}, {4, 5, 6}}, v{7, 8};
  EXPECT_EQ(to_eigen_matrix(m), (Eigen::MatrixXd(2, 3) << 1, 2, 3, 4, 5, 6).finished());
  EXPECT_EQ(to_eigen_matrix(m.transposed()), (Eigen::MatrixXd(3, 2) << 1, 4, 2, 5, 3, 6).finished());
  EXPECT_EQ(to_eigen_vector(v), Eigen::Vector2d(7, 8));
  EXPECT_THROW(to_eigen_vector(m), Error);
}

}  // namespace
}  // namespace onestep
