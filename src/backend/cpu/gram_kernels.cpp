// The kernels of a symmetric product, compiled once for each instruction set.
#include "backend/cpu/gram_kernels.h"

#include <algorithm>
#include <cmath>
#include <utility>

// SSSE3 machines without SSE4 take the baseline. Vectors of unknown length cannot be kept in arrays.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/gram_kernels.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which defines what it needs.
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onestep::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<double>;
using V = hn::Vec<D>;

// A tile is one panel high and up to `strip` panels wide: its sums, a row of the strip and one more must fit the registers.
inline constexpr std::size_t lanes = hn::MaxLanes(D());
inline constexpr std::size_t panel = std::max<std::size_t>(lanes, 4);
inline constexpr std::size_t strip = HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SCALAR ? 1 : 3;
static_assert(gram_tile_columns % (strip * panel) == 0 && gram_least_columns >= panel);

/// Where panel p of a packed block begins, and how long its rows are.
struct Panels {
  const double* packed;
  std::size_t rows, n;

  std::size_t width(std::size_t p) const { return std::min(panel, n - p * panel); }
  std::size_t begin(std::size_t p) const { return width(p) < panel ? 0 : rows * (n % panel + p * panel); }
};

void pack_rows_of(std::size_t begin, std::size_t end, std::size_t rows, std::size_t n, const double* a, std::size_t lda,
                  const double* d, double* packed) {
  const D tag;
  const std::size_t rest = n % panel, full = n - rest;
  const auto negative = [d](std::size_t i) { return d != nullptr && d[i] < 0; };
  std::size_t negative_before = 0;
  for (std::size_t i = 0; i < begin; ++i) negative_before += negative(i);
  std::size_t front = begin - negative_before, back = rows - negative_before;
  // A few rows at a time, so that what is written is longer than a cache line.
  constexpr std::size_t at_once = 8;
  for (std::size_t i0 = begin; i0 < end; i0 += at_once) {
    const std::size_t count = std::min(at_once, end - i0);
    double scale[at_once];
    std::size_t place[at_once];
    for (std::size_t i = 0; i < count; ++i) {
      scale[i] = d == nullptr ? 1 : std::sqrt(std::fabs(d[i0 + i]));
      place[i] = negative(i0 + i) ? --back : front++;
    }
    for (std::size_t j = 0; j < full; j += panel) {
      double* const to = packed + rows * (rest + j);
      for (std::size_t i = 0; i < count; ++i) {
        const double* const from = a + (i0 + i) * lda + j;
        const V s = hn::Set(tag, scale[i]);
        for (std::size_t l = 0; l < panel; l += lanes) {
          hn::StoreU(hn::Mul(s, hn::LoadU(tag, from + l)), tag, to + place[i] * panel + l);
        }
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; j < rest; ++j) packed[place[i] * rest + j] = scale[i] * a[(i0 + i) * lda + full + j];
    }
  }
}

/// The sums of a tile of Rows x (Columns panels), and what is done with all of them: a loop whose index is a constant.
template <std::size_t Rows, std::size_t Columns> struct Tile {
  static constexpr std::size_t vectors = Columns * panel / lanes;
  V sum[Rows][vectors];

  template <class F, std::size_t... I> static HWY_INLINE void each(F f, std::index_sequence<I...>) {
    (f(std::integral_constant<std::size_t, I>{}), ...);
  }
  template <std::size_t Count, class F> static HWY_INLINE void each(F f) { each(f, std::make_index_sequence<Count>{}); }
};

template <bool Negative, std::size_t Rows, std::size_t Columns>
HWY_INLINE void add_products(Tile<Rows, Columns>& t, std::size_t rows, const double* a, std::size_t stride_a,
                             const double* b, std::size_t stride_b, std::size_t panel_b) {
  using T = Tile<Rows, Columns>;
  const D tag;
  for (std::size_t r = 0; r < rows; ++r, a += stride_a, b += stride_b) {
    V right[T::vectors];
    T::template each<T::vectors>([&](auto v) {
      constexpr std::size_t per_panel = panel / lanes;
      right[v] = hn::LoadU(tag, b + v / per_panel * panel_b + v % per_panel * lanes);
    });
    T::template each<Rows>([&](auto i) {
      const V left = hn::Set(tag, a[i]);
      T::template each<T::vectors>([&](auto v) {
        t.sum[i][v] = Negative ? hn::NegMulAdd(left, right[v], t.sum[i][v]) : hn::MulAdd(left, right[v], t.sum[i][v]);
      });
    });
  }
}

/// Panels of one tile: `row` for its rows, `column` and those after it for its columns.
struct Place {
  Panels panels;
  std::size_t nonnegative, row, column;
  double beta;
  double* c;
  std::size_t ldc;
};

template <std::size_t Rows, std::size_t Columns> void add_tile(const Place& at) {
  using T = Tile<Rows, Columns>;
  const D tag;
  const Panels& p = at.panels;
  const std::size_t stride_a = p.width(at.row), stride_b = p.width(at.column), panel_b = p.rows * panel;
  const double *a = p.packed + p.begin(at.row), *b = p.packed + p.begin(at.column);
  double* const c = at.c + at.row * panel * at.ldc + at.column * panel;
  for (std::size_t i = 0; i < std::min(Rows, stride_a); ++i) {
    for (std::size_t j = 0; j < Columns * panel; j += 8) hwy::Prefetch(c + i * at.ldc + j);
  }
  T t;
  T::template each<Rows>([&](auto i) { T::template each<T::vectors>([&](auto v) { t.sum[i][v] = hn::Zero(tag); }); });
  add_products<false>(t, at.nonnegative, a, stride_a, b, stride_b, panel_b);
  add_products<true>(t, p.rows - at.nonnegative, a + at.nonnegative * stride_a, stride_a, b + at.nonnegative * stride_b,
                     stride_b, panel_b);
  const bool below_diagonal = at.column + Columns <= at.row && stride_a >= Rows;
  if (below_diagonal) {
    const V beta = hn::Set(tag, at.beta);
    T::template each<Rows>([&](auto i) {
      T::template each<T::vectors>([&](auto v) {
        double* const to = c + i * at.ldc + v * lanes;
        hn::StoreU(at.beta == 0 ? t.sum[i][v] : hn::MulAdd(beta, hn::LoadU(tag, to), t.sum[i][v]), tag, to);
      });
    });
    return;
  }
  HWY_ALIGN double sums[Rows * Columns * panel];
  T::template each<Rows>([&](auto i) {
    T::template each<T::vectors>([&](auto v) { hn::Store(t.sum[i][v], tag, sums + i * Columns * panel + v * lanes); });
  });
  for (std::size_t i = 0; i < std::min(Rows, stride_a); ++i) {
    const std::size_t diagonal = at.row * panel + i - at.column * panel;
    for (std::size_t j = 0; j < std::min(Columns * panel, diagonal + 1); ++j) {
      double& to = c[i * at.ldc + j];
      to = at.beta == 0 ? sums[i * Columns * panel + j] : at.beta * to + sums[i * Columns * panel + j];
    }
  }
}

template <std::size_t Columns> void add_tile_of_rows(const Place& at) {
  if (at.panels.width(at.row) <= panel / 2) {
    add_tile<panel / 2, Columns>(at);
  } else {
    add_tile<panel, Columns>(at);
  }
}

void add_gram(std::size_t rows, std::size_t n, const double* packed, std::size_t nonnegative, double beta, std::size_t i0,
              std::size_t i1, std::size_t j0, std::size_t j1, double* c, std::size_t ldc) {
  const std::size_t row_begin = i0 / panel, row_end = (i1 + panel - 1) / panel;
  const std::size_t column_begin = j0 / panel, column_end = (j1 + panel - 1) / panel, full = std::min(column_end, n / panel);
  Place at{{packed, rows, n}, nonnegative, 0, 0, beta, c, ldc};
  // A strip of columns stays in the first cache while all rows pass by. The panel that is not full is a strip of its own.
  std::size_t widest = 1;
  for (at.column = column_begin; at.column < column_end; at.column += widest) {
    widest = at.column < full ? std::min(strip, full - at.column) : 1;
    for (at.row = std::max(row_begin, at.column); at.row < row_end; ++at.row) {
      const std::size_t columns = std::min(widest, at.row - at.column + 1);
      if constexpr (strip == 3) {
        if (columns == 3) add_tile_of_rows<3>(at);
        if (columns == 2) add_tile_of_rows<2>(at);
      }
      if (columns == 1) add_tile_of_rows<1>(at);
    }
  }
}

void add_lower(std::size_t begin, std::size_t end, std::size_t count, std::size_t n, const double* partials, double* c,
               std::size_t ldc) {
  const D tag;
  for (std::size_t i = begin; i < end; ++i) {
    double* const to = c + i * ldc;
    for (std::size_t p = 0; p < count; ++p) {
      const double* const from = partials + (p * n + i) * n;
      std::size_t j = 0;
      for (; j + lanes <= i + 1; j += lanes)
        hn::StoreU(hn::Add(hn::LoadU(tag, to + j), hn::LoadU(tag, from + j)), tag, to + j);
      for (; j <= i; ++j) to[j] += from[j];
    }
  }
}

}  // namespace
}  // namespace onestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onestep::cpu {

HWY_EXPORT(pack_rows_of);
HWY_EXPORT(add_gram);
HWY_EXPORT(add_lower);

void pack_weighted_rows(std::size_t begin, std::size_t end, std::size_t rows, std::size_t n, const double* a,
                        std::size_t lda, const double* d, double* packed) {
  HWY_DYNAMIC_DISPATCH(pack_rows_of)(begin, end, rows, n, a, lda, d, packed);
}

void add_packed_gram(std::size_t rows, std::size_t n, const double* packed, std::size_t nonnegative, double beta,
                     std::size_t i0, std::size_t i1, std::size_t j0, std::size_t j1, double* c, std::size_t ldc) {
  HWY_DYNAMIC_DISPATCH(add_gram)(rows, n, packed, nonnegative, beta, i0, i1, j0, j1, c, ldc);
}

void add_lower_rows(std::size_t begin, std::size_t end, std::size_t count, std::size_t n, const double* partials, double* c,
                    std::size_t ldc) {
  HWY_DYNAMIC_DISPATCH(add_lower)(begin, end, count, n, partials, c, ldc);
}

}  // namespace onestep::cpu
#endif
