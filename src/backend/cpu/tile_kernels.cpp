// Compiled once for each instruction set. Vectors run along the rows of the tile, so that short columns cost nothing.

#include "backend/cpu/tile_kernels.h"

#include <algorithm>
#include <cmath>

// SSSE3 machines without SSE4 are not worth a copy of everything: they take the baseline. Vectors of unknown length cannot
// be kept in arrays.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/tile_kernels.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which defines what they need.
#include "backend/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace onestep::cpu::HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<double>;
using V = hn::Vec<D>;

// How many columns are worked on at once: block² sums and 2 block operands must fit the registers, 32 with AVX-512, else 16.
inline constexpr std::size_t gram_block_size = HWY_ARCH_X86 && HWY_TARGET == HWY_AVX3 ? 5 : 3;
inline constexpr std::size_t tmatvec_block_size = 5;

// Calls Body::run<size> for a size known only at run time, 1 <= size <= Largest.
template <class Body, std::size_t Largest, class... Args> HWY_INLINE void with_size(std::size_t size, Args... args) {
  if (size == Largest) {
    Body::template run<Largest>(args...);
  } else if constexpr (Largest > 1) {
    with_size<Body, Largest - 1>(size, args...);
  }
}

// The tile's columns and the weights of its rows; unit weights are read again and again from one vector of ones.
struct WeightedTile {
  const double* packed;
  std::size_t stride, rows;
  const double* weights;
  std::size_t weights_step;
};

// Adds rows [row, row + Lanes) of the products of J columns with K columns, of which only k <= j when Triangle.
template <std::size_t J, std::size_t K, bool Triangle, class Load>
HWY_INLINE void add_products(V (&sums)[J][K], const WeightedTile& t, std::size_t j0, std::size_t k0, std::size_t row,
                             Load load) {
  const V w = load(t.weights + row * t.weights_step);
  V right[K];
  HWY_UNROLL(8) for (std::size_t k = 0; k < K; ++k) right[k] = load(t.packed + (k0 + k) * t.stride + row);
  HWY_UNROLL(8) for (std::size_t j = 0; j < J; ++j) {
    const V left = w * (Triangle ? right[j] : load(t.packed + (j0 + j) * t.stride + row));
    HWY_UNROLL(8)
    for (std::size_t k = 0; k < (Triangle ? j + 1 : K); ++k) sums[j][k] = hn::MulAdd(left, right[k], sums[j][k]);
  }
}

struct LoadAll {
  HWY_INLINE V operator()(const double* p) const { return hn::LoadU(D(), p); }
};
struct LoadFirst {
  std::size_t count;
  HWY_INLINE V operator()(const double* p) const { return load_tail(D(), p, count); }
};

template <std::size_t J, std::size_t K, bool Triangle>
void gram_block(const WeightedTile& t, std::size_t j0, std::size_t k0, double* c, std::size_t ldc) {
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  V sums[J][K];
  HWY_UNROLL(8) for (std::size_t j = 0; j < J; ++j) {
    HWY_UNROLL(8) for (std::size_t k = 0; k < K; ++k) sums[j][k] = hn::Zero(d);
  }
  std::size_t row = 0;
  for (; row + lanes <= t.rows; row += lanes) add_products<J, K, Triangle>(sums, t, j0, k0, row, LoadAll{});
  if (row < t.rows) add_products<J, K, Triangle>(sums, t, j0, k0, row, LoadFirst{t.rows - row});
  HWY_UNROLL(8) for (std::size_t j = 0; j < J; ++j) {
    HWY_UNROLL(8) for (std::size_t k = 0; k < (Triangle ? j + 1 : K); ++k) {
      c[(j0 + j) * ldc + k0 + k] += hn::GetLane(hn::SumOfLanes(d, sums[j][k]));
    }
  }
}

// Rows [j0, j0 + J) of the triangle. Below the diagonal a short block goes row by row, which spares a kernel for every size.
struct GramRows {
  template <std::size_t J> static HWY_INLINE void run(const WeightedTile& t, std::size_t j0, double* c, std::size_t ldc) {
    constexpr std::size_t rows_at_once = J == gram_block_size ? J : 1;
    for (std::size_t k0 = 0; k0 < j0; k0 += gram_block_size) {
      for (std::size_t j = j0; j < j0 + J; j += rows_at_once) {
        gram_block<rows_at_once, gram_block_size, false>(t, j, k0, c, ldc);
      }
    }
    gram_block<J, J, true>(t, j0, j0, c, ldc);
  }
};

struct TransposedColumns {
  template <std::size_t J>
  static HWY_INLINE void run(const double* columns, std::size_t stride, std::size_t rows, const double* r, double* out) {
    const D d;
    const std::size_t lanes = hn::Lanes(d);
    V even[J], odd[J];  // two sums for each column hide the latency of multiply-add
    HWY_UNROLL(8) for (std::size_t j = 0; j < J; ++j) even[j] = odd[j] = hn::Zero(d);
    std::size_t i = 0;
    for (; i + 2 * lanes <= rows; i += 2 * lanes) {
      const V r0 = hn::LoadU(d, r + i);
      const V r1 = hn::LoadU(d, r + i + lanes);
      HWY_UNROLL(8) for (std::size_t j = 0; j < J; ++j) {
        even[j] = hn::MulAdd(hn::LoadU(d, columns + j * stride + i), r0, even[j]);
        odd[j] = hn::MulAdd(hn::LoadU(d, columns + j * stride + i + lanes), r1, odd[j]);
      }
    }
    if (i + lanes <= rows) {
      const V r0 = hn::LoadU(d, r + i);
      HWY_UNROLL(8)
      for (std::size_t j = 0; j < J; ++j) even[j] = hn::MulAdd(hn::LoadU(d, columns + j * stride + i), r0, even[j]);
      i += lanes;
    }
    if (i < rows) {
      const V r0 = load_tail(d, r + i, rows - i);
      HWY_UNROLL(8)
      for (std::size_t j = 0; j < J; ++j) odd[j] = hn::MulAdd(load_tail(d, columns + j * stride + i, rows - i), r0, odd[j]);
    }
    HWY_UNROLL(8) for (std::size_t j = 0; j < J; ++j) out[j] += hn::GetLane(hn::SumOfLanes(d, even[j] + odd[j]));
  }
};

// to[j * to_stride + i] = from[i * from_stride + j] for i < patch_rows, j < patch_columns, by shuffles in registers: as fast
// as gathers where those are fast, and many times faster where they are not.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
inline constexpr std::size_t patch_rows = 8, patch_columns = 4;
HWY_INLINE V two_rows(const double* low, const double* high) {
  const hn::Half<D> half;
  return hn::Combine(D(), hn::LoadU(half, high), hn::LoadU(half, low));
}
HWY_INLINE void transpose_patch(const double* from, std::size_t from_stride, double* to, std::size_t to_stride) {
  const D d;
  const double* lower = from + 4 * from_stride;
  const V r02 = two_rows(from, from + 2 * from_stride), r13 = two_rows(from + from_stride, from + 3 * from_stride);
  const V r46 = two_rows(lower, lower + 2 * from_stride), r57 = two_rows(lower + from_stride, lower + 3 * from_stride);
  const V even0 = hn::InterleaveLower(d, r02, r13), even4 = hn::InterleaveLower(d, r46, r57);
  const V odd0 = hn::InterleaveUpper(d, r02, r13), odd4 = hn::InterleaveUpper(d, r46, r57);
  hn::StoreU(V{_mm512_shuffle_f64x2(even0.raw, even4.raw, 0x88)}, d, to);
  hn::StoreU(V{_mm512_shuffle_f64x2(odd0.raw, odd4.raw, 0x88)}, d, to + to_stride);
  hn::StoreU(V{_mm512_shuffle_f64x2(even0.raw, even4.raw, 0xdd)}, d, to + 2 * to_stride);
  hn::StoreU(V{_mm512_shuffle_f64x2(odd0.raw, odd4.raw, 0xdd)}, d, to + 3 * to_stride);
}
#elif HWY_ARCH_X86 && HWY_TARGET == HWY_AVX2
inline constexpr std::size_t patch_rows = 4, patch_columns = 4;
HWY_INLINE void transpose_patch(const double* from, std::size_t from_stride, double* to, std::size_t to_stride) {
  const D d;
  const V r0 = hn::LoadU(d, from), r1 = hn::LoadU(d, from + from_stride);
  const V r2 = hn::LoadU(d, from + 2 * from_stride), r3 = hn::LoadU(d, from + 3 * from_stride);
  const V even0 = hn::InterleaveLower(d, r0, r1), even2 = hn::InterleaveLower(d, r2, r3);
  const V odd0 = hn::InterleaveUpper(d, r0, r1), odd2 = hn::InterleaveUpper(d, r2, r3);
  hn::StoreU(hn::ConcatLowerLower(d, even2, even0), d, to);
  hn::StoreU(hn::ConcatLowerLower(d, odd2, odd0), d, to + to_stride);
  hn::StoreU(hn::ConcatUpperUpper(d, even2, even0), d, to + 2 * to_stride);
  hn::StoreU(hn::ConcatUpperUpper(d, odd2, odd0), d, to + 3 * to_stride);
}
#else
inline constexpr std::size_t patch_rows = 4, patch_columns = 1;
HWY_INLINE void transpose_patch(const double* from, std::size_t from_stride, double* to, std::size_t) {
  HWY_UNROLL(4) for (std::size_t i = 0; i < 4; ++i) to[i] = from[i * from_stride];
}
#endif

}  // namespace

void pack(const double* a, std::size_t lda, std::size_t rows, std::size_t n, double* packed, std::size_t stride) {
  std::size_t i = 0;
  for (; i + patch_rows <= rows; i += patch_rows) {
    const double* row = a + i * lda;
    std::size_t j = 0;
    for (; j + patch_columns <= n; j += patch_columns) transpose_patch(row + j, lda, packed + j * stride + i, stride);
    for (; j < n; ++j) {
      HWY_UNROLL(8) for (std::size_t k = 0; k < patch_rows; ++k) packed[j * stride + i + k] = row[k * lda + j];
    }
  }
  for (; i < rows; ++i) {
    for (std::size_t j = 0; j < n; ++j) packed[j * stride + i] = a[i * lda + j];
  }
}

void matvec(const double* packed, std::size_t stride, std::size_t rows, std::size_t n, const double* x, double* out) {
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + 4 * lanes <= rows; i += 4 * lanes) {
    V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    const double* column = packed + i;
    for (std::size_t j = 0; j < n; ++j, column += stride) {
      const V xj = hn::Set(d, x[j]);
      s0 = hn::MulAdd(hn::LoadU(d, column), xj, s0);
      s1 = hn::MulAdd(hn::LoadU(d, column + lanes), xj, s1);
      s2 = hn::MulAdd(hn::LoadU(d, column + 2 * lanes), xj, s2);
      s3 = hn::MulAdd(hn::LoadU(d, column + 3 * lanes), xj, s3);
    }
    hn::StoreU(s0, d, out + i);
    hn::StoreU(s1, d, out + i + lanes);
    hn::StoreU(s2, d, out + i + 2 * lanes);
    hn::StoreU(s3, d, out + i + 3 * lanes);
  }
  for (; i + lanes <= rows; i += lanes) {
    V s = hn::Zero(d);
    for (std::size_t j = 0; j < n; ++j) s = hn::MulAdd(hn::LoadU(d, packed + j * stride + i), hn::Set(d, x[j]), s);
    hn::StoreU(s, d, out + i);
  }
  if (i < rows) {
    V s = hn::Zero(d);
    for (std::size_t j = 0; j < n; ++j) {
      s = hn::MulAdd(load_tail(d, packed + j * stride + i, rows - i), hn::Set(d, x[j]), s);
    }
    store_tail(d, s, out + i, rows - i);
  }
}

void tmatvec(const double* packed, std::size_t stride, std::size_t rows, std::size_t n, const double* r, double* out) {
  for (std::size_t j = 0; j < n; j += tmatvec_block_size) {
    with_size<TransposedColumns, tmatvec_block_size>(std::min(tmatvec_block_size, n - j), packed + j * stride, stride, rows,
                                                     r, out + j);
  }
}

void gram(const double* packed, std::size_t stride, std::size_t rows, std::size_t n, const double* d, double* c,
          std::size_t ldc) {
  HWY_ALIGN double ones[hn::MaxLanes(D())];
  hn::Store(hn::Set(D(), 1.0), D(), ones);
  const WeightedTile tile{packed, stride, rows, d != nullptr ? d : ones, d != nullptr ? std::size_t{1} : 0};
  for (std::size_t j0 = 0; j0 < n; j0 += gram_block_size) {
    with_size<GramRows, gram_block_size>(std::min(gram_block_size, n - j0), tile, j0, c, ldc);
  }
}

// Both factorisations divide by the pivots first and take their roots at the end, off the chain of dependent operations.
// NaN and infinity end up in a pivot, wherever they were.
bool is_pivot(double x) { return x > 0 && x < kernel::infinity; }

bool cholesky_in_place(double* a, std::size_t n, std::size_t lda) {
  for (std::size_t j = 0; j < n; ++j) {
    const double pivot = a[j * lda + j];
    if (!is_pivot(pivot)) return false;
    const double inverse = 1.0 / pivot;
    for (std::size_t i = j + 1; i < n; ++i) {
      const double factor = a[i * lda + j] * inverse;
      for (std::size_t k = j + 1; k <= i; ++k) a[i * lda + k] -= factor * a[k * lda + j];
    }
  }
  for (std::size_t j = 0; j < n; ++j) {
    const double root = std::sqrt(a[j * lda + j]);
    const double inverse = 1.0 / root;
    a[j * lda + j] = root;
    for (std::size_t i = j + 1; i < n; ++i) a[i * lda + j] *= inverse;
  }
  return true;
}

// The same on a copy of the transpose, whose rows are contiguous and padded to whole vectors.
bool cholesky_by_vectors(double* a, std::size_t n, std::size_t lda) {
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t ldu = (n + lanes - 1) / lanes * lanes;
  HWY_ALIGN double u[max_small_n * max_small_n];
  for (std::size_t k = 0; k < n * ldu; k += lanes) hn::Store(hn::Zero(d), d, u + k);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) u[j * ldu + i] = a[i * lda + j];
  }
  for (std::size_t j = 0; j < n; ++j) {
    const double* row = u + j * ldu;
    if (!is_pivot(row[j])) return false;
    const double inverse = 1.0 / row[j];
    for (std::size_t i = j + 1; i < n; ++i) {
      const V factor = hn::Set(d, row[i] * inverse);
      for (std::size_t k = i / lanes * lanes; k < n; k += lanes) {
        double* entries = u + i * ldu + k;
        hn::Store(hn::NegMulAdd(factor, hn::Load(d, row + k), hn::Load(d, entries)), d, entries);
      }
    }
  }
  for (std::size_t j = 0; j < n; ++j) {
    const double root = std::sqrt(u[j * ldu + j]);
    const double inverse = 1.0 / root;
    a[j * lda + j] = root;
    for (std::size_t i = j + 1; i < n; ++i) a[i * lda + j] = u[j * ldu + i] * inverse;
  }
  return true;
}

bool cholesky(double* a, std::size_t n, std::size_t lda) {
  return n <= 10 ? cholesky_in_place(a, n, lda) : cholesky_by_vectors(a, n, lda);
}

void cholesky_solve(const double* l, std::size_t n, std::size_t lda, double* b) {
  double inverse[max_small_n];  // all divisions at once, ahead of the chain that needs them
  for (std::size_t i = 0; i < n; ++i) inverse[i] = 1.0 / l[i * lda + i];
  for (std::size_t j = 0; j < n; ++j) {
    const double x = b[j] *= inverse[j];
    for (std::size_t i = j + 1; i < n; ++i) b[i] -= l[i * lda + j] * x;
  }
  for (std::size_t j = n; j-- > 0;) {
    const double x = b[j] *= inverse[j];
    for (std::size_t i = 0; i < j; ++i) b[i] -= l[j * lda + i] * x;
  }
}

}  // namespace onestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onestep::cpu {

HWY_EXPORT(pack);
HWY_EXPORT(matvec);
HWY_EXPORT(tmatvec);
HWY_EXPORT(gram);
HWY_EXPORT(cholesky);
HWY_EXPORT(cholesky_solve);

void pack_rows(const double* a, std::size_t lda, std::size_t rows, std::size_t n, double* packed, std::size_t stride) {
  HWY_DYNAMIC_DISPATCH(pack)(a, lda, rows, n, packed, stride);
}
void packed_matvec(const double* packed, std::size_t stride, std::size_t rows, std::size_t n, const double* x, double* out) {
  HWY_DYNAMIC_DISPATCH(matvec)(packed, stride, rows, n, x, out);
}
void packed_tmatvec(const double* packed, std::size_t stride, std::size_t rows, std::size_t n, const double* r,
                    double* out) {
  HWY_DYNAMIC_DISPATCH(tmatvec)(packed, stride, rows, n, r, out);
}
void packed_gram(const double* packed, std::size_t stride, std::size_t rows, std::size_t n, const double* d, double* c,
                 std::size_t ldc) {
  HWY_DYNAMIC_DISPATCH(gram)(packed, stride, rows, n, d, c, ldc);
}
bool small_cholesky(double* a, std::size_t n, std::size_t lda) { return HWY_DYNAMIC_DISPATCH(cholesky)(a, n, lda); }
void small_cholesky_solve(const double* l, std::size_t n, std::size_t lda, double* b) {
  HWY_DYNAMIC_DISPATCH(cholesky_solve)(l, n, lda, b);
}

}  // namespace onestep::cpu
#endif
