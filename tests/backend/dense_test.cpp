// Dense kernels against plain loops, at random shapes (0 and 1 among them) and at sizes on both sides of every threshold.
#include "backend/cpu/dense.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

#include "backend/cpu/blas.h"
#include "backend/cpu/tile_kernels.h"
#include "hwy/targets.h"
#include "parallel/pool.h"

namespace onestep::cpu {
namespace {

using Vector = std::vector<double>;
constexpr double eps = std::numeric_limits<double>::epsilon();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double inf = std::numeric_limits<double>::infinity();

class Dense : public ::testing::Test {
 protected:
  std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }
  double normal() { return std::normal_distribution<double>()(random_); }
  bool coin() { return below(2) == 1; }
  Vector normals(std::size_t n) {
    Vector v(n);
    for (double& x : v) x = normal();
    return v;
  }
  /// 0 and 1 often, otherwise anything up to `most`.
  std::size_t dimension(std::size_t most) {
    const std::size_t kind = below(6);
    return kind < 2 ? kind : below(most) + 1;
  }
  Vector symmetric(std::size_t n) {
    Vector a = normals(n * n);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < i; ++j) a[j * n + i] = a[i * n + j];
    }
    return a;
  }
  Vector positive_definite(std::size_t n) {
    Vector a = symmetric(n);
    for (std::size_t i = 0; i < n; ++i) a[i * n + i] = 2 * std::sqrt(static_cast<double>(n)) + std::fabs(a[i * n + i]);
    return a;
  }
  Vector matrix_for(Op kind, std::size_t n) {
    if (kind == Op::cholesky) return positive_definite(n);
    if (kind == Op::ldlt) return symmetric(n);
    return normals(n * n);
  }

  /// Calls check(i, j) for every entry of an m x n matrix, or for a random thousand of them.
  template <class F> void for_entries(std::size_t m, std::size_t n, F check) {
    constexpr std::size_t most = 1000;
    if (m * n <= most) {
      for (std::size_t i = 0; i < m * n; ++i) check(i / n, i % n);
    } else {
      for (std::size_t s = 0; s < most && !HasFatalFailure(); ++s) check(below(m), below(n));
    }
  }

  BlasSerial serial_;
  std::mt19937_64 random_{20230611};
};

/// Scratch of exactly the promised size, full of NaN: an address sanitizer sees one step past it, a test what is read too
/// early.
struct Scratch {
  explicit Scratch(std::size_t size) : data(size, nan) {}
  double* get() { return data.empty() ? nullptr : data.data(); }
  Vector data;
};

double largest(const Vector& v) {
  double most = 0;
  for (const double x : v) most = std::max(most, std::fabs(x));
  return most;
}

/// A sum of products, and the sum of their absolute values: the scale of its rounding.
struct Sum {
  double value = 0, scale = 0;

  void add(double term) {
    value += term;
    scale += std::fabs(term);
  }
};

/// Entry (i, j) of op(a) op(b), where k is the inner dimension.
Sum plain_product(bool ta, bool tb, std::size_t i, std::size_t j, std::size_t k, const Vector& a, std::size_t lda,
                  const Vector& b, std::size_t ldb) {
  Sum sum;
  for (std::size_t l = 0; l < k; ++l) {
    sum.add((ta ? a[l * lda + i] : a[i * lda + l]) * (tb ? b[j * ldb + l] : b[l * ldb + j]));
  }
  return sum;
}

/// Entry (i, j) of aᵀ diag(d) a; no d stands for ones.
Sum plain_gram(std::size_t rows, std::size_t i, std::size_t j, const Vector& a, std::size_t lda, const Vector& d) {
  Sum sum;
  for (std::size_t r = 0; r < rows; ++r) sum.add((d.empty() ? 1 : d[r]) * a[r * lda + i] * a[r * lda + j]);
  return sum;
}

double tolerance(std::size_t terms, double scale) { return 4 * eps * (static_cast<double>(terms) + 4) * (scale + 1e-300); }

/// The same bits with 1, 2 and 3 threads; `compute` returns what it computed.
template <class F> void expect_same_bits(F compute) {
  set_threads(1);
  const Vector one = compute();
  for (const int n : {2, 3}) {
    set_threads(n);
    for (int repeat = 0; repeat < 2; ++repeat) {
      const Vector other = compute();
      ASSERT_EQ(one.size(), other.size());
      if (!one.empty()) {
        ASSERT_EQ(std::memcmp(one.data(), other.data(), one.size() * sizeof(double)), 0) << n << " threads";
      }
    }
  }
  set_threads(2);
}

TEST_F(Dense, GemmIsThreeLoops) {
  for (int trial = 0; trial < 300; ++trial) {
    const bool big = trial % 50 == 0, ta = coin(), tb = coin();
    const std::size_t m = big ? 200 + below(200) : dimension(20), n = big ? 160 + below(200) : dimension(20);
    const std::size_t k = big ? 100 + below(100) : dimension(40);
    const Vector a = normals(m * k), b = normals(n * k);
    Vector c(m * n, nan);
    Scratch scratch(gemm_scratch(m, n, k));
    gemm(ta, tb, m, n, k, a.data(), b.data(), c.data(), scratch.get());
    for_entries(m, n, [&](std::size_t i, std::size_t j) {
      const Sum plain = plain_product(ta, tb, i, j, k, a, ta ? m : k, b, tb ? k : n);
      ASSERT_NEAR(c[i * n + j], plain.value, tolerance(k, plain.scale));
    });
  }
}

TEST_F(Dense, GemmOfLongSumsIsThreeLoops) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const std::size_t m = 31, n = 17, k = 9001;
      ASSERT_GT(gemm_scratch(m, n, k), 0u);
      const Vector a = normals(m * k), b = normals(n * k);
      Vector c(m * n, nan);
      Scratch scratch(gemm_scratch(m, n, k));
      gemm(ta, tb, m, n, k, a.data(), b.data(), c.data(), scratch.get());
      for_entries(m, n, [&](std::size_t i, std::size_t j) {
        const Sum plain = plain_product(ta, tb, i, j, k, a, ta ? m : k, b, tb ? k : n);
        ASSERT_NEAR(c[i * n + j], plain.value, tolerance(k, plain.scale));
      });
    }
  }
}

TEST_F(Dense, GemmHasTheSameBitsForAnyNumberOfThreads) {
  for (const auto& [m, n, k] : std::vector<std::tuple<std::size_t, std::size_t, std::size_t>>{
           {5, 7, 9}, {500, 400, 300}, {4000, 8, 100}, {8, 4000, 100}, {30, 20, 20000}, {1, 1, 3000000}}) {
    const Vector a = normals(m * k), b = normals(k * n);
    Scratch scratch(gemm_scratch(m, n, k));
    expect_same_bits([&] {
      Vector c(m * n, nan);
      gemm(false, false, m, n, k, a.data(), b.data(), c.data(), scratch.get());
      return c;
    });
  }
}

// The pieces put together as a row loop does it, all rows at once: adds to the lower triangle of c.
void gram_by_blocks(std::size_t rows, std::size_t n, const double* a, const double* d, double* c, bool mirror) {
  const RowCut cut = row_cut(rows, n);
  std::vector<Vector> partials(cut.chunks.count, Vector(n * n, 0.0));
  parallel_for(cut.chunks.count, [&](std::size_t chunk) {
    for (std::size_t r = cut.chunks.begin(chunk); r < cut.chunks.end(chunk); r += cut.block_rows) {
      const std::size_t block = std::min(cut.block_rows, cut.chunks.end(chunk) - r);
      Scratch scratch(panels_size(block, n));
      gram(block, n, a + r * n, d == nullptr ? nullptr : d + r, partials[chunk].data(), scratch.get());
    }
  });
  for (const Vector& partial : partials) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j <= i; ++j) c[i * n + j] += partial[i * n + j];
    }
  }
  if (mirror) mirror_lower(n, c);
}

class Gram : public Dense {
 protected:
  void check(std::size_t rows, std::size_t n, Vector d) {
    const bool mirror = coin();
    const Vector a = normals(rows * n);
    Vector c(n * n, 0.0);
    gram_by_blocks(rows, n, a.data(), d.empty() ? nullptr : d.data(), c.data(), mirror);
    for_entries(n, n, [&](std::size_t i, std::size_t j) {
      if (j > i && !mirror) {
        ASSERT_EQ(c[i * n + j], 0) << "the upper triangle is not ours";
      } else {
        const Sum plain = plain_gram(rows, i, j, a, n, d);
        ASSERT_NEAR(c[i * n + j], plain.value, tolerance(rows, plain.scale)) << rows << " x " << n;
        ASSERT_TRUE(!mirror || c[i * n + j] == c[j * n + i]);
      }
    });
  }

  Vector weights(std::size_t rows, int signs) {
    Vector d = normals(rows);
    for (double& x : d) x = signs == 0 ? x : signs * std::fabs(x);
    return d;
  }
};

TEST_F(Gram, IsThreeLoopsForWeightsOfAnySigns) {
  for (int trial = 0; trial < 300; ++trial) {
    const std::size_t rows = dimension(100), n = dimension(40);
    check(rows, n, trial % 4 == 3 ? Vector{} : weights(rows, trial % 4 - 1));
  }
}

TEST_F(Gram, IsThreeLoopsWhereRowsAreCutIntoChunks) {
  for (const auto& [rows, n] : std::vector<std::pair<std::size_t, std::size_t>>{{3001, 60}, {1700, 130}, {2400, 300}}) {
    ASSERT_GT(row_cut(rows, n).chunks.count, 1u);
    for (const int signs : {-1, 0, 1}) check(rows, n, weights(rows, signs));
    check(rows, n, {});
  }
}

TEST_F(Gram, IsThreeLoopsWhereTheResultIsTiled) {
  for (const auto& [rows, n] :
       std::vector<std::pair<std::size_t, std::size_t>>{{0, 400}, {1, 401}, {200, 520}, {500, 403}}) {
    ASSERT_TRUE(row_cut(rows, n).tiled);
    for (const int signs : {-1, 0, 1}) check(rows, n, weights(rows, signs));
    check(rows, n, {});
  }
}

TEST_F(Gram, HasTheSameBitsForAnyNumberOfThreads) {
  for (const auto& [rows, n] : std::vector<std::pair<std::size_t, std::size_t>>{
           {100, 5}, {30000, 12}, {2500, 100}, {2400, 300}, {400, 450}, {200, 1030}}) {
    const Vector a = normals(rows * n), d = normals(rows);
    expect_same_bits([&] {
      Vector c(n * n, 0.0);
      gram_by_blocks(rows, n, a.data(), d.data(), c.data(), true);
      return c;
    });
  }
}

TEST_F(Gram, CarriesNanAndInfinityOfTheWeights) {
  for (const auto& [rows, n] : std::vector<std::pair<std::size_t, std::size_t>>{{20, 3}, {3001, 60}, {200, 520}}) {
    const Vector a = normals(rows * n);
    for (const double bad : {nan, inf, -inf}) {
      Vector d = normals(rows), c(n * n, 0);
      d[rows - 3] = bad;
      gram_by_blocks(rows, n, a.data(), d.data(), c.data(), true);
      for (const double x : c) ASSERT_FALSE(std::isfinite(x));
    }
  }
}

TEST_F(Gram, BlocksAddToWhatIsThere) {
  for (int trial = 0; trial < 200; ++trial) {
    const std::size_t rows = dimension(60), n = trial % 40 == 0 ? 150 + below(300) : dimension(60);
    const Vector a = normals(rows * n), d = weights(rows, trial % 3 - 1);
    Vector c(n * n, 2);
    Scratch scratch(panels_size(rows, n));
    gram(rows, n, a.data(), d.data(), c.data(), scratch.get());
    for_entries(n, n, [&](std::size_t i, std::size_t j) {
      const Sum plain = plain_gram(rows, i, j, a, n, d);
      ASSERT_NEAR(c[i * n + j], j > i ? 2 : 2 + plain.value, tolerance(rows, 2 + plain.scale)) << rows << " x " << n;
    });
  }
}

TEST_F(Gram, IsTheSameOnEveryInstructionSet) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    for (const std::size_t n : {8u, 9u, 11u, 12u, 15u, 16u, 23u, 24u, 25u, 31u, 47u, 50u, 200u}) {
      for (const int signs : {-1, 0, 1}) check(333, n, weights(333, signs));
    }
    check(3001, 60, weights(3001, 0));
    check(200, 410, weights(200, 0));
  }
  hwy::SetSupportedTargetsForTest(0);
}

class Factors : public Dense, public ::testing::WithParamInterface<Op> {
 protected:
  bool factor_of(std::size_t n, Vector& a) {
    pivots_.assign(n, -1000000);
    Scratch scratch(factor_scratch(GetParam(), n));
    return factor(GetParam(), n, a.data(), GetParam() == Op::cholesky ? nullptr : pivots_.data(), scratch.get());
  }
  void expect_spoiled(std::size_t n, const Vector& f) {
    for (const std::size_t nrhs : {1u, 3u}) {
      Vector b(n * nrhs, 1.0);
      solve(GetParam(), false, n, f.data(), pivots_.data(), b.data(), nrhs);
      for (const double x : b) ASSERT_TRUE(std::isnan(x));
    }
    EXPECT_TRUE(std::isnan(logdet(GetParam(), n, f.data(), pivots_.data())));
  }
  std::vector<int> pivots_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, Factors, ::testing::Values(Op::cholesky, Op::lu, Op::ldlt), [](const auto& kind) {
  return kind.param == Op::cholesky ? "cholesky" : kind.param == Op::lu ? "lu" : "ldlt";
});

TEST_P(Factors, SolveBackwardStably) {
  for (int trial = 0; trial < 240; ++trial) {
    const std::size_t n = trial % 60 == 0 ? 512 + below(120) : trial % 20 == 0 ? 100 + below(80) : dimension(40);
    const std::size_t nrhs = trial % 60 == 0 ? 1 + below(70) : dimension(9);
    const bool transposed = coin();
    const Vector a = matrix_for(GetParam(), n), b = normals(n * nrhs);
    Vector f = a, x = b;
    if (GetParam() != Op::lu) {
      for (std::size_t i = 0; i < n; ++i)
        std::fill_n(f.begin() + static_cast<std::ptrdiff_t>(i * n + i + 1), n - i - 1, nan);
    }
    ASSERT_TRUE(factor_of(n, f)) << n;
    solve(GetParam(), transposed, n, f.data(), pivots_.data(), x.data(), nrhs);
    const double size = static_cast<double>(n) * largest(a) * largest(x) + largest(b);
    for_entries(n, nrhs, [&](std::size_t i, std::size_t j) {
      const double ax = plain_product(transposed, false, i, j, n, a, n, x, nrhs).value;
      ASSERT_NEAR(ax, b[i * nrhs + j], 20 * eps * (static_cast<double>(n) + 10) * size) << n;
    });
  }
}

TEST_P(Factors, HaveTheSameBitsForAnyNumberOfThreads) {
  for (const auto& [n, nrhs] : std::vector<std::pair<std::size_t, std::size_t>>{{30, 3}, {200, 500}, {700, 1}, {530, 70}}) {
    const Vector a = matrix_for(GetParam(), n), b = normals(n * nrhs);
    expect_same_bits([&] {
      Vector f = a, x = b;
      EXPECT_TRUE(factor_of(n, f));
      solve(GetParam(), false, n, f.data(), pivots_.data(), x.data(), nrhs);
      x.insert(x.end(), f.begin(), f.end());
      return x;
    });
  }
}

TEST_P(Factors, RefuseWhatIsNotFiniteWhereverItStands) {
  for (const std::size_t n : {1u, 2u, 7u, 40u, 150u, 600u}) {
    for (const double bad : {nan, inf, -inf}) {
      for (int trial = 0; trial < (n < 500 ? 8 : 2); ++trial) {
        Vector f = matrix_for(GetParam(), n);
        const std::size_t i = below(n), j = below(i + 1);
        f[i * n + j] = bad;
        ASSERT_FALSE(factor_of(n, f)) << bad << " at " << i << ", " << j << " of " << n;
        if (trial == 0) expect_spoiled(n, f);
      }
    }
  }
}

TEST_P(Factors, RefuseASingularMatrix) {
  for (const std::size_t n : {1u, 2u, 6u, 50u, 560u}) {
    Vector zero(n * n, 0.0);
    ASSERT_FALSE(factor_of(n, zero)) << n;
    expect_spoiled(n, zero);
    Vector missing = matrix_for(GetParam(), n);
    for (std::size_t i = 0; i < n; ++i) missing[i * n + n / 2] = missing[(n / 2) * n + i] = 0;
    ASSERT_FALSE(factor_of(n, missing)) << n;
    expect_spoiled(n, missing);
  }
}

TEST_P(Factors, SurviveEntriesThatOverflowOnTheWay) {
  for (const std::size_t n : {3u, 20u, 100u, 600u}) {
    Vector f = matrix_for(GetParam(), n);
    for (double& x : f) x = std::copysign(1.7e308, x);
    if (factor_of(n, f)) {
      EXPECT_TRUE(std::isfinite(logdet(GetParam(), n, f.data(), pivots_.data())));
    } else {
      expect_spoiled(n, f);
    }
  }
}

TEST_P(Factors, NanOnTheRightStaysNan) {
  const std::size_t n = 30;
  Vector f = matrix_for(GetParam(), n);
  ASSERT_TRUE(factor_of(n, f));
  Vector b = normals(n), many = normals(n * 4);
  b[11] = nan;
  many[11 * 4 + 2] = nan;
  solve(GetParam(), false, n, f.data(), pivots_.data(), b.data(), 1);
  solve(GetParam(), false, n, f.data(), pivots_.data(), many.data(), 4);
  EXPECT_TRUE(std::any_of(b.begin(), b.end(), [](double x) { return std::isnan(x); }));
  for (std::size_t i = 0; i < n; ++i) {
    EXPECT_EQ(std::isnan(many[i * 4 + 2]), std::isnan(b[i]));
    for (const std::size_t j : {0u, 1u, 3u}) EXPECT_TRUE(std::isfinite(many[i * 4 + j]));
  }
}

TEST_P(Factors, LogdetIsThatOfAMatrixBuiltFromKnownFactors) {
  // a = l diag(s) lᵀ with unit lower l: log |det a| = Σ log |s|; l is kept well conditioned.
  for (const std::size_t n : {0u, 1u, 2u, 3u, 5u, 24u, 90u, 530u}) {
    Vector l(n * n, 0.0), ls(n * n, 0.0), s = normals(n), a(n * n);
    double expected = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (GetParam() == Op::cholesky) s[i] = std::fabs(s[i]);
      s[i] += std::copysign(0.1, s[i]);
      expected += std::log(std::fabs(s[i]));
      for (std::size_t j = 0; j <= i; ++j) {
        l[i * n + j] = i == j ? 1 : normal() / static_cast<double>(n);
        ls[i * n + j] = l[i * n + j] * s[j];
      }
    }
    Scratch scratch(gemm_scratch(n, n, n));
    gemm(false, true, n, n, n, ls.data(), l.data(), a.data(), scratch.get());
    ASSERT_TRUE(factor_of(n, a));
    EXPECT_NEAR(logdet(GetParam(), n, a.data(), pivots_.data()), expected, 1e-11 * (static_cast<double>(n) + 1)) << n;
  }
}

TEST_F(Dense, CholeskyRefusesAnIndefiniteMatrixWhereverItShows) {
  for (const std::size_t n : {1u, 5u, 100u, 600u}) {
    for (const std::size_t at : {std::size_t{0}, n / 2, n - 1}) {
      Vector a = positive_definite(n);
      a[at * n + at] = -1;
      Scratch scratch(factor_scratch(Op::cholesky, n));
      EXPECT_FALSE(factor(Op::cholesky, n, a.data(), nullptr, scratch.get())) << n << " at " << at;
    }
  }
}

TEST_F(Dense, LogdetOfTwoByTwoBlocks) {
  // No 1 x 1 pivot is possible here: det [[0, q], [q, 0]] = -q².
  Vector a = {0, 3, 0, 0, 3, 0, 0, 0, 0, 0, 0, 5, 0, 0, 5, 0};
  std::vector<int> pivots(4);
  Scratch scratch(factor_scratch(Op::ldlt, 4));
  ASSERT_TRUE(factor(Op::ldlt, 4, a.data(), pivots.data(), scratch.get()));
  EXPECT_NEAR(logdet(Op::ldlt, 4, a.data(), pivots.data()), std::log(225.0), 1e-14);
  Vector b = {3, 6, 5, 10};
  solve(Op::ldlt, false, 4, a.data(), pivots.data(), b.data(), 1);
  EXPECT_EQ(b, (Vector{2, 1, 2, 1}));
}

}  // namespace
}  // namespace onestep::cpu
