// The products of packed tiles and the small factorisations against plain loops in long double, on every instruction set
// this machine has.

#include "backend/cpu/tile_kernels.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace onestep::cpu {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double epsilon = std::numeric_limits<double>::epsilon();

using Extended = long double;

class TileKernelsTest : public ::testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    hwy::GetChosenTarget().DeInit();
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }

  std::vector<double> normal(std::size_t size) {
    std::vector<double> v(size);
    for (double& x : v) x = normal_(random);
    return v;
  }
  std::size_t below(std::size_t end) { return random() % end; }

  std::mt19937_64 random{7};

 private:
  std::normal_distribution<> normal_;
};

std::vector<std::int64_t> targets() {
  std::vector<std::int64_t> found;
  for (std::int64_t t : {HWY_AVX3, HWY_AVX2, HWY_SSE4, HWY_SCALAR}) {
    if (t == HWY_SCALAR || (hwy::SupportedTargets() & t) != 0) found.push_back(t);
  }
  return found;
}

INSTANTIATE_TEST_SUITE_P(Target, TileKernelsTest, ::testing::ValuesIn(targets()),
                         [](const auto& target) { return std::string(hwy::TargetName(target.param)); });

// A random tile and its packed form. The gaps between the packed columns hold NaN, which must reach no result; the last
// column ends where the vector ends, so that the address sanitizer sees a read past it.
struct PackedTile {
  std::size_t rows, n, stride;
  std::vector<double> a, packed;

  double at(std::size_t i, std::size_t j) const { return a[i * n + j]; }
};

PackedTile make_tile(std::vector<double> entries, std::size_t rows, std::size_t n, std::size_t stride) {
  PackedTile t{rows, n, stride, std::move(entries), {}};
  t.packed.assign(n == 0 ? 0 : (n - 1) * stride + rows, nan);
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t i = 0; i < rows; ++i) t.packed[j * stride + i] = t.at(i, j);
  }
  return t;
}

// The sizes that matter: every small one, and some as large as they come.
std::vector<std::pair<std::size_t, std::size_t>> sizes() {
  std::vector<std::pair<std::size_t, std::size_t>> all;
  for (std::size_t rows = 0; rows <= 35; ++rows) {
    for (std::size_t n = 0; n <= 13; ++n) all.emplace_back(rows, n);
  }
  for (std::size_t n : {1u, 5u, 10u, 17u, 23u, 24u, 31u}) {
    for (std::size_t rows : {64u, 200u, 256u, 301u}) all.emplace_back(rows, n);
  }
  return all;
}

// A sum of `terms` products errs by at most about half a unit of the last place for each operation on the way.
Extended tolerance(std::size_t terms, Extended magnitude) {
  return static_cast<Extended>(terms + 4) * Extended{epsilon} * magnitude;
}

TEST_P(TileKernelsTest, MatvecIsASumOverColumns) {
  for (const auto& [rows, n] : sizes()) {
    const PackedTile t = make_tile(normal(rows * n), rows, n, rows + below(5));
    const std::vector<double> x = normal(n);
    std::vector<double> out(rows, nan);
    tile_kernels().matvec(t.packed.data(), t.stride, rows, n, x.data(), out.data());
    for (std::size_t i = 0; i < rows; ++i) {
      Extended want = 0, magnitude = 0;
      for (std::size_t j = 0; j < n; ++j) {
        want += Extended{t.at(i, j)} * x[j];
        magnitude += std::fabs(Extended{t.at(i, j)} * x[j]);
      }
      ASSERT_LE(std::fabs(out[i] - want), tolerance(n, magnitude)) << rows << " x " << n;
    }
  }
}

// Row-major, as long as they come; the last row ends where the vector ends.
TEST_P(TileKernelsTest, ProductsWithRowsAreSums) {
  std::vector<std::pair<std::size_t, std::size_t>> all = sizes();
  for (const std::size_t n : {31u, 32u, 33u, 63u, 64u, 65u, 500u}) all.insert(all.end(), {{1, n}, {2, n}, {4, n}, {7, n}});
  for (const auto& [rows, n] : all) {
    const std::vector<double> a = normal(rows * n), x = normal(n), r = normal(rows), before = normal(n);
    std::vector<double> out(rows, nan), transposed = before;
    tile_kernels().row_matvec(a.data(), rows, n, x.data(), out.data());
    tile_kernels().row_tmatvec(a.data(), rows, n, r.data(), transposed.data());
    for (std::size_t i = 0; i < rows; ++i) {
      Extended want = 0, magnitude = 0;
      for (std::size_t j = 0; j < n; ++j) {
        want += Extended{a[i * n + j]} * x[j];
        magnitude += std::fabs(Extended{a[i * n + j]} * x[j]);
      }
      ASSERT_LE(std::fabs(out[i] - want), tolerance(n, magnitude)) << rows << " x " << n;
      // A row's bits depend on the row alone, wherever it is cut off from the others.
      double alone = nan;
      tile_kernels().row_matvec(a.data() + i * n, 1, n, x.data(), &alone);
      ASSERT_EQ(out[i], alone) << rows << " x " << n;
    }
    for (std::size_t j = 0; j < n; ++j) {
      Extended want = before[j], magnitude = std::fabs(before[j]);
      for (std::size_t i = 0; i < rows; ++i) {
        want += Extended{a[i * n + j]} * r[i];
        magnitude += std::fabs(Extended{a[i * n + j]} * r[i]);
      }
      ASSERT_LE(std::fabs(transposed[j] - want), tolerance(rows, magnitude)) << rows << " x " << n;
    }
  }
}

TEST_P(TileKernelsTest, TransposedMatvecAddsASumOverRows) {
  for (const auto& [rows, n] : sizes()) {
    const PackedTile t = make_tile(normal(rows * n), rows, n, rows + below(5));
    const std::vector<double> r = normal(rows), before = normal(n);
    std::vector<double> out = before;
    tile_kernels().tmatvec(t.packed.data(), t.stride, rows, n, r.data(), out.data());
    for (std::size_t j = 0; j < n; ++j) {
      Extended want = before[j], magnitude = std::fabs(before[j]);
      for (std::size_t i = 0; i < rows; ++i) {
        want += Extended{t.at(i, j)} * r[i];
        magnitude += std::fabs(Extended{t.at(i, j)} * r[i]);
      }
      ASSERT_LE(std::fabs(out[j] - want), tolerance(rows, magnitude)) << rows << " x " << n;
    }
  }
}

TEST_P(TileKernelsTest, GramAddsToTheLowerTriangleAlone) {
  for (const auto& [rows, n] : sizes()) {
    for (const bool weighted : {false, true}) {
      const PackedTile t = make_tile(normal(rows * n), rows, n, rows + below(5));
      const std::vector<double> d = normal(rows), before = normal(n * n);
      std::vector<double> c = before;
      tile_kernels().gram(t.packed.data(), t.stride, rows, n, weighted ? d.data() : nullptr, c.data());
      for (std::size_t j = 0; j < n; ++j) {
        for (std::size_t k = 0; k < n; ++k) {
          Extended want = before[j * n + k], magnitude = std::fabs(want);
          for (std::size_t i = 0; k <= j && i < rows; ++i) {
            const Extended term = Extended{t.at(i, j)} * t.at(i, k) * (weighted ? d[i] : 1.0);
            want += term;
            magnitude += std::fabs(term);
          }
          ASSERT_LE(std::fabs(c[j * n + k] - want), k <= j ? tolerance(rows, magnitude) : 0) << rows << " x " << n;
        }
      }
    }
  }
}

TEST_P(TileKernelsTest, ANanInTheTileReachesEveryResultThatUsesIt) {
  for (const std::size_t rows : {1u, 8u, 13u, 40u}) {
    for (std::size_t row = 0; row < rows; ++row) {
      const std::size_t n = 7, column = row % n;
      std::vector<double> a = normal(rows * n);
      a[row * n + column] = nan;
      const PackedTile t = make_tile(a, rows, n, rows);
      const std::vector<double> x(n, 1.0), r(rows, 1.0);
      std::vector<double> ax(rows), atr(n, 0.0), c(n * n, 0.0);
      tile_kernels().matvec(t.packed.data(), t.stride, rows, n, x.data(), ax.data());
      tile_kernels().tmatvec(t.packed.data(), t.stride, rows, n, r.data(), atr.data());
      tile_kernels().gram(t.packed.data(), t.stride, rows, n, nullptr, c.data());
      for (std::size_t i = 0; i < rows; ++i) EXPECT_EQ(std::isnan(ax[i]), i == row);
      for (std::size_t j = 0; j < n; ++j) {
        EXPECT_EQ(std::isnan(atr[j]), j == column);
        for (std::size_t k = 0; k <= j; ++k) EXPECT_EQ(std::isnan(c[j * n + k]), j == column || k == column);
      }
    }
  }
}

// A positive definite matrix with the given condition; only its lower triangle is meant to be read, the rest is NaN.
std::vector<double> positive_definite(const std::vector<double>& random_square, std::size_t n, double spread) {
  std::vector<double> a(n * n, nan);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = i == j ? 1.0 : 0.0;
      for (std::size_t k = 0; k < n; ++k) {
        sum += random_square[i * n + k] * random_square[j * n + k] * std::pow(spread, -static_cast<double>(k));
      }
      a[i * n + j] = sum;
    }
  }
  return a;
}

// Higham, Accuracy and Stability, theorem 10.3: |LLᵀ - A| <= γ_{n+1} |L||Lᵀ|, entry by entry; two more roundings for the
// scaling by reciprocals.
TEST_P(TileKernelsTest, CholeskyIsBackwardStableAndReadsTheLowerTriangleAlone) {
  for (std::size_t n = 0; n <= max_small_n; ++n) {
    for (const double spread : {1.0, 4.0}) {
      const std::vector<double> a = positive_definite(normal(n * n), n, spread);
      std::vector<double> l = a;
      ASSERT_TRUE(tile_kernels().cholesky(l.data(), n)) << n;
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < n; ++j) {
          if (j > i) {
            ASSERT_EQ(l[i * n + j], l[j * n + i]);  // it was NaN
            continue;
          }
          Extended product = 0, magnitude = 0;
          for (std::size_t k = 0; k <= j; ++k) {
            product += Extended{l[i * n + k]} * l[j * n + k];
            magnitude += std::fabs(Extended{l[i * n + k]} * l[j * n + k]);
          }
          ASSERT_LE(std::fabs(product - a[i * n + j]), tolerance(n, magnitude)) << n << ": " << i << ", " << j;
        }
      }
    }
  }
}

TEST_P(TileKernelsTest, CholeskySolveLeavesASmallResidual) {
  for (std::size_t n = 0; n <= max_small_n; ++n) {
    const std::vector<double> a = positive_definite(normal(n * n), n, 2.0);
    std::vector<double> l = a;
    ASSERT_TRUE(tile_kernels().cholesky(l.data(), n));
    const std::vector<double> b = normal(n);
    std::vector<double> x = b;
    tile_kernels().cholesky_solve(l.data(), n, x.data());
    for (std::size_t i = 0; i < n; ++i) {
      // |b - Ax| <= γ |L||Lᵀ||x|, Higham, theorem 10.4.
      Extended residual = b[i], magnitude = 0;
      for (std::size_t j = 0; j < n; ++j) {
        residual -= Extended{j <= i ? a[i * n + j] : a[j * n + i]} * x[j];
        Extended l_lt = 0;
        for (std::size_t k = 0; k <= std::min(i, j); ++k) l_lt += std::fabs(Extended{l[i * n + k]} * l[j * n + k]);
        magnitude += l_lt * std::fabs(Extended{x[j]});
      }
      ASSERT_LE(std::fabs(residual), 4 * tolerance(n, magnitude)) << n;
    }
  }
}

TEST_P(TileKernelsTest, CholeskyRefusesWhatIsNotPositiveDefiniteWhereverItShows) {
  for (std::size_t n = 1; n <= max_small_n; ++n) {
    const std::vector<double> good = positive_definite(normal(n * n), n, 2.0);
    for (std::size_t i = 0; i < n; ++i) {
      for (const double diagonal : {0.0, -0.0, -1.0, -inf, inf, nan}) {
        std::vector<double> a = good;
        a[i * n + i] = diagonal;
        ASSERT_FALSE(tile_kernels().cholesky(a.data(), n)) << n << " at " << i << " with " << diagonal;
      }
      for (std::size_t j = 0; j < i; ++j) {
        for (const double entry : {inf, -inf, nan, 1e10}) {
          std::vector<double> a = good;
          a[i * n + j] = entry;
          ASSERT_FALSE(tile_kernels().cholesky(a.data(), n)) << n << " at " << i << ", " << j << " with " << entry;
        }
      }
    }
  }
}

}  // namespace
}  // namespace onestep::cpu
