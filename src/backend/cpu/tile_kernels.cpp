// The kernels of tiles, compiled once for each instruction set: loops around the elementwise kernels of vector_math-inl.h,
// reductions, products and small factorisations.
#include "backend/cpu/tile_kernels.h"

#include <utility>

// SSSE3 machines without SSE4 are not worth a copy of everything: they take the baseline. Vectors of unknown length cannot
// be kept in arrays.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/tile_kernels.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which defines what it needs.
#include "backend/cpu/vector_math-inl.h"
#include "hwy/cache_control.h"

HWY_BEFORE_NAMESPACE();
namespace onestep::cpu::HWY_NAMESPACE {
namespace {

// ---- elementwise ----

// An operand as the loop reads it: a scalar is repeated in a buffer one vector long that is read again and again, so that
// one loop serves every combination of scalars and tiles. The buffer is kept apart for the sake of the optimiser, which then
// knows that no store reaches the pointer.
struct Repeated {
  HWY_ALIGN double entries[lanes];
};
struct Stream {
  const double* data;
  size_t mask = ~size_t{0};
  HWY_INLINE Stream(const Operand& operand, Repeated& buffer) : data(operand.data) {
    if (!operand.scalar) return;
    hn::Store(set(*data), D(), buffer.entries);
    data = buffer.entries;
    mask = 0;
  }
  template <class Part> HWY_INLINE V load(size_t i, Part part) const { return part.load(data + (i & mask)); }
};

template <size_t... I, class Kernel>
HWY_INLINE void map(std::index_sequence<I...>, const Operand* args, double* out, size_t n, Kernel kernel) {
  Repeated buffers[sizeof...(I)];
  const Stream streams[] = {Stream(args[I], buffers[I])...};
  each_vector(0, n, [&](size_t i, auto part) { part.store(kernel(streams[I].load(i, part)...), out + i); });
}

// A row without a function of its name in vector_math-inl.h does not compile.
TileKernel elementwise(Op op) {
  switch (op) {
#define ONESTEP_MAP(arity, name)                                                                          \
  case Op::name:                                                                                          \
    return [](const Operand* args, double* out, size_t n) {                                               \
      map(std::make_index_sequence<arity>(), args, out, n, [](auto... v) { return kernel::name(v...); }); \
    };
#define ONESTEP_UNARY(name, ...) ONESTEP_MAP(1, name)
#define ONESTEP_BINARY(name, ...) ONESTEP_MAP(2, name)
#define ONESTEP_TERNARY(name, ...) ONESTEP_MAP(3, name)
#include "onestep/operations.def"
#define ONESTEP_STRUCTURAL(name, ...) case Op::name:
#include "onestep/operations.def"
    break;
  }
  return nullptr;  // not elementwise
}

// ---- reductions ----

// f(0), ..., f(Count - 1), each index a constant, so that what it chooses can be in a register.
template <size_t Count, class F> HWY_INLINE void unrolled(F f) {
  [&]<size_t... I>(std::index_sequence<I...>) { (f(std::integral_constant<size_t, I>{}), ...); }
  (std::make_index_sequence<Count>());
}

// Four accumulators hide the latency of addition; they are joined in a fixed order.
template <class Add, class Join> HWY_INLINE V reduce(double start, size_t n, Add add, Join join) {
  V s[4] = {set(start), set(start), set(start), set(start)};
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) unrolled<4>([&](auto k) { s[k] = add(s[k], i + k * lanes, Whole{}); });
  each_vector(i, n, [&](size_t rest, auto part) { s[0] = add(s[0], rest, part); });
  return join(join(s[0], s[1]), join(s[2], s[3]));
}

HWY_INLINE double sum_of_lanes(V v) { return hn::GetLane(hn::SumOfLanes(D(), v)); }
HWY_INLINE V larger_or_nan(V largest, V x) { return hn::IfThenElse(hn::Or(hn::Gt(x, largest), hn::IsNaN(x)), x, largest); }

double sum(const double* x, size_t n) {
  const auto add = [x](V s, size_t i, auto part) { return s + part.load(x + i); };
  return sum_of_lanes(reduce(0, n, add, kernel::add));
}

double dot(const double* x, const double* y, size_t n) {
  const auto add = [x, y](V s, size_t i, auto part) { return hn::MulAdd(part.load(x + i), part.load(y + i), s); };
  return sum_of_lanes(reduce(0, n, add, kernel::add));
}

double max(const double* x, size_t n) {
  const auto add = [x](V m, size_t i, auto part) { return larger_or_nan(m, part.load(x + i, -infinity)); };
  HWY_ALIGN double all[lanes];
  hn::Store(reduce(-infinity, n, add, larger_or_nan), D(), all);
  double largest = all[0];
  for (const double x_k : all) largest = x_k > largest || x_k != x_k ? x_k : largest;
  return largest;
}

void axpy(double alpha, const double* x, double* y, size_t n) {
  const Operand args[] = {{&alpha, true}, {x, false}, {y, false}};
  map(std::make_index_sequence<3>(), args, y, n, [](V a, V b, V c) { return hn::MulAdd(a, b, c); });
}

// ---- products ----

// Count rows at once, each with a sum of its own: what they wait for is another row's.
template <size_t Count> HWY_INLINE void products_of_rows(size_t n, const double* a, const double* x, double* out) {
  V s[Count];
  unrolled<Count>([&](auto k) { s[k] = zero(); });
  each_vector(0, n, [&](size_t j, auto part) {
    const V x_j = part.load(x + j);
    unrolled<Count>([&](auto k) { s[k] = hn::MulAdd(part.load(a + k * n + j), x_j, s[k]); });
  });
  unrolled<Count>([&](auto k) { out[k] = sum_of_lanes(s[k]); });
}

void row_matvec(const double* a, size_t rows, size_t n, const double* x, double* out) {
  constexpr size_t short_row = 8 * lanes, together = 4;
  size_t i = 0;
  if (n <= short_row) {
    for (; i + together <= rows; i += together) products_of_rows<together>(n, a + i * n, x, out + i);
    for (; i < rows; ++i) products_of_rows<1>(n, a + i * n, x, out + i);
  }
  for (; i < rows; ++i) out[i] = dot(a + i * n, x, n);
}

void row_tmatvec(const double* a, size_t rows, size_t n, const double* r, double* out) {
  each_vector(0, n, [&](size_t j, auto part) {
    V s = part.load(out + j);
    for (size_t i = 0; i < rows; ++i) s = hn::MulAdd(set(r[i]), part.load(a + i * n + j), s);
    part.store(s, out + j);
  });
}

// Columns worked on at once: block² sums and 2 block operands must fit the registers, 32 with AVX-512, else 16.
inline constexpr size_t block = lanes < 8 ? 3 : 5;

// A part of a result of panels is one panel high and up to `strip` panels wide: its sums, a row of the strip and one more
// must fit the registers.
inline constexpr size_t panel = std::max<size_t>(lanes, 4);
inline constexpr size_t strip = lanes < 4 ? 1 : 3;
static_assert(gram_tile_columns % (strip * panel) == 0 && cache_line % panel == 0);

constexpr double unit = 1;
constexpr Operand one{&unit, true};

// Calls f(integral_constant) for a size known only at run time, 1 <= size <= Largest.
template <size_t Largest, class F> HWY_INLINE void with_size(size_t size, F f) {
  if (size == Largest) {
    f(std::integral_constant<size_t, Largest>{});
  } else if constexpr (Largest > 1) {
    with_size<Largest - 1>(size, f);
  }
}

// Two sets of columns of a tile, and the weights of its rows.
struct Columns {
  const double *left, *right;
  size_t stride, rows;
  Stream weights;
};

// c_jk += sum over the rows of weight left_j right_k, of which only k <= j when Triangle: left and right are then the same.
template <size_t J, size_t K, bool Triangle> void add_products(const Columns& t, double* c, size_t ldc) {
  V sums[J][K];  // not zero by itself: a vector of NEON has a constructor that leaves it as it is
  unrolled<J>([&](auto j) { unrolled<K>([&](auto k) { sums[j][k] = zero(); }); });
  each_vector(0, t.rows, [&](size_t row, auto part) {
    const V weights = t.weights.load(row, part);
    V right[K];
    unrolled<K>([&](auto k) { right[k] = part.load(t.right + k * t.stride + row); });
    unrolled<J>([&](auto j) {
      const V left = weights * (Triangle ? right[j] : part.load(t.left + j * t.stride + row));
      unrolled<Triangle ? j + 1 : K>([&](auto k) { sums[j][k] = hn::MulAdd(left, right[k], sums[j][k]); });
    });
  });
  unrolled<J>([&](auto j) { unrolled<Triangle ? j + 1 : K>([&](auto k) { c[j * ldc + k] += sum_of_lanes(sums[j][k]); }); });
}

// The part of the triangle that begins `row` panels down and `column` panels to the right.
template <size_t Rows, size_t Columns>
void add_panels(size_t rows, size_t positive, size_t n, const double* panels, size_t row, size_t column, double* c) {
  constexpr size_t vectors = Columns * panel / lanes, per_panel = panel / lanes, width = Columns * panel;
  const size_t height = std::min(Rows, n - row * panel), diagonal = (row - column) * panel;
  double* const to = c + row * panel * n + column * panel;
  for (size_t i = 0; i < height; ++i)
    for (size_t j = 0; j < width; j += cache_line) hwy::Prefetch(to + i * n + j);
  V sums[Rows][vectors];
  unrolled<Rows>([&](auto i) { unrolled<vectors>([&](auto v) { sums[i][v] = zero(); }); });
  const double *left = panels + row * panel * rows, *right = panels + column * panel * rows;
  const auto add_rows = [&](size_t count, auto negative) {
    for (size_t r = 0; r < count; ++r, left += panel, right += panel) {
      V b[vectors];
      unrolled<vectors>(
          [&](auto v) { b[v] = hn::LoadU(D(), right + v / per_panel * panel * rows + v % per_panel * lanes); });
      unrolled<Rows>([&](auto i) {
        const V a = set(left[i]);
        unrolled<vectors>(
            [&](auto v) { sums[i][v] = negative ? hn::NegMulAdd(a, b[v], sums[i][v]) : hn::MulAdd(a, b[v], sums[i][v]); });
      });
    }
  };
  add_rows(positive, std::false_type());
  add_rows(rows - positive, std::true_type());
  HWY_ALIGN double all[Rows][width];
  unrolled<Rows>([&](auto i) { unrolled<vectors>([&](auto v) { hn::Store(sums[i][v], D(), all[i] + v * lanes); }); });
  for (size_t i = 0; i < height; ++i) {
    each_vector(0, std::min(width, diagonal + i + 1),
                [&](size_t j, auto part) { part.store(part.load(to + i * n + j) + part.load(all[i] + j), to + i * n + j); });
  }
}

void matvec(const double* a, size_t stride, size_t rows, size_t n, const double* x, double* out) {
  size_t i = 0;
  for (; i + 4 * lanes <= rows; i += 4 * lanes) {
    V s[4] = {zero(), zero(), zero(), zero()};
    for (size_t j = 0; j < n; ++j)
      unrolled<4>([&](auto k) { s[k] = hn::MulAdd(hn::LoadU(D(), a + j * stride + i + k * lanes), set(x[j]), s[k]); });
    unrolled<4>([&](auto k) { hn::StoreU(s[k], D(), out + i + k * lanes); });
  }
  each_vector(i, rows, [&](size_t row, auto part) {
    V s = zero();
    for (size_t j = 0; j < n; ++j) s = hn::MulAdd(part.load(a + j * stride + row), set(x[j]), s);
    part.store(s, out + row);
  });
}

void tmatvec(const double* a, size_t stride, size_t rows, size_t n, const double* r, double* out) {
  Repeated ones;
  const Stream weights(one, ones);
  for (size_t j = 0; j < n; j += block) {
    with_size<block>(std::min(block, n - j), [&](auto count) {
      add_products<1, count, false>({r, a + j * stride, stride, rows, weights}, out + j, 0);
    });
  }
}

// Below the diagonal a short block goes row by row, which spares a kernel for every size.
void gram(const double* a, size_t stride, size_t rows, size_t n, const double* d, double* c) {
  Repeated ones;
  const Stream weights(d == nullptr ? one : Operand{d, false}, ones);
  for (size_t j0 = 0; j0 < n; j0 += block) {
    with_size<block>(std::min(block, n - j0), [&](auto count) {
      constexpr size_t at_once = count == block ? block : 1;
      for (size_t k = 0; k < j0; k += block) {
        for (size_t j = j0; j < j0 + count; j += at_once)
          add_products<at_once, block, false>({a + j * stride, a + k * stride, stride, rows, weights}, c + j * n + k, n);
      }
      add_products<count, count, true>({nullptr, a + j0 * stride, stride, rows, weights}, c + j0 * n + j0, n);
    });
  }
}

void pack(size_t begin, size_t end, size_t rows, size_t n, const double* a, const double* d, double* panels) {
  constexpr size_t at_once = 8;  // rows, so that what is written is longer than a cache line
  size_t front = begin - count_negative(begin, d), back = rows - count_negative(begin, d);
  for (size_t i0 = begin; i0 < end; i0 += at_once) {
    const size_t count = std::min(at_once, end - i0);
    double scale[at_once];
    double* place[at_once];
    for (size_t i = 0; i < count; ++i) {
      scale[i] = d == nullptr ? 1 : std::sqrt(std::fabs(d[i0 + i]));
      place[i] = panels + panel * (d != nullptr && d[i0 + i] < 0 ? --back : front++);
    }
    for (size_t j = 0; j < padded(n); j += lanes) {
      const size_t to = j / panel * panel * rows + j % panel;
      for (size_t i = 0; i < count; ++i) {
        const double* const from = a + (i0 + i) * n + j;
        const V v = j + lanes <= n ? hn::LoadU(D(), from) : j < n ? First{n - j}.load(from) : zero();
        hn::StoreU(v * set(scale[i]), D(), place[i] + to);
      }
    }
  }
}

// A strip of columns stays in the first cache while all rows pass by.
void panels_gram(size_t rows, size_t positive, size_t n, const double* panels, size_t i0, size_t i1, size_t j0, size_t j1,
                 double* c) {
  for (size_t column = j0 / panel; column * panel < j1; column += strip) {
    for (size_t row = std::max(i0 / panel, column); row * panel < i1; ++row) {
      const size_t columns = std::min({strip, row - column + 1, (j1 + panel - 1) / panel - column});
      with_size<strip>(columns, [&](auto count) {
        if (n - row * panel <= panel / 2)
          add_panels<panel / 2, count>(rows, positive, n, panels, row, column, c);
        else
          add_panels<panel, count>(rows, positive, n, panels, row, column, c);
      });
    }
  }
}

// Count panels at once, so that sums that wait for each other have company. All of them: the rows of `a` from here on.
template <size_t Count> void solve_panels(size_t width, const double* l, size_t rows, size_t n, double* a, double* panels) {
  constexpr size_t vectors = Count * panel / lanes, per_panel = panel / lanes;
  const auto entry = [=](size_t i, size_t r) { return panels + i / panel * panel * width + r * panel + i % panel; };
  for (size_t i = 0; i < Count * panel; ++i) {
    for (size_t r = 0; r < width; ++r) *entry(i, r) = i < rows ? a[i * n + r] : 0;
  }
  for (size_t r = 0; r < width; ++r) {
    V sum[vectors];
    const auto at = [=](size_t v, size_t row) {
      return panels + v / per_panel * panel * width + row * panel + v % per_panel * lanes;
    };
    HWY_UNROLL(8) for (size_t v = 0; v < vectors; ++v) sum[v] = hn::LoadU(D(), at(v, r));
    for (size_t t = 0; t < r; ++t) {
      const V factor = set(l[r * width + t]);
      HWY_UNROLL(8) for (size_t v = 0; v < vectors; ++v) sum[v] = hn::NegMulAdd(factor, hn::LoadU(D(), at(v, t)), sum[v]);
    }
    const V inverse = set(1 / l[r * width + r]);
    HWY_UNROLL(8) for (size_t v = 0; v < vectors; ++v) hn::StoreU(sum[v] * inverse, D(), at(v, r));
  }
  for (size_t i = 0; i < std::min(rows, Count * panel); ++i) {
    for (size_t r = 0; r < width; ++r) a[i * n + r] = *entry(i, r);
  }
}

void panels_solve(size_t width, const double* l, size_t begin, size_t end, size_t n, double* a, double* panels) {
  constexpr size_t most = 6 * panel / lanes > 6 ? 3 : 6;
  for (size_t i = begin; i < end; i += most * panel) {
    with_size<most>(std::min(most, (end - i + panel - 1) / panel),
                    [&](auto count) { solve_panels<count>(width, l, n - i, n, a + i * n, panels + i * width); });
  }
}

// On a copy of the transpose, whose rows are contiguous and padded to whole vectors. It divides by the pivots first and
// takes their roots at the end, off the chain of dependent operations. NaN and infinity end up in a pivot, wherever they
// were.
bool cholesky(double* a, size_t n) {
  const size_t ldu = (n + lanes - 1) / lanes * lanes;
  HWY_ALIGN double u[max_small_n * max_small_n];
  for (size_t k = 0; k < n * ldu; k += lanes) hn::Store(zero(), D(), u + k);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j <= i; ++j) u[j * ldu + i] = a[i * n + j];
  for (size_t j = 0; j < n; ++j) {
    const double* row = u + j * ldu;
    if (!(row[j] > 0 && row[j] < infinity)) return false;
    const double inverse = 1.0 / row[j];
    for (size_t i = j + 1; i < n; ++i) {
      const V factor = set(row[i] * inverse);
      for (size_t k = i / lanes * lanes; k < n; k += lanes) {
        double* entries = u + i * ldu + k;
        hn::Store(hn::NegMulAdd(factor, hn::Load(D(), row + k), hn::Load(D(), entries)), D(), entries);
      }
    }
  }
  for (size_t j = 0; j < n; ++j) {
    const double root = std::sqrt(u[j * ldu + j]), inverse = 1.0 / root;
    a[j * n + j] = root;
    for (size_t i = j + 1; i < n; ++i) a[i * n + j] = a[j * n + i] = u[j * ldu + i] * inverse;
  }
  return true;
}

// w -= x · row from `begin` to `end` and beside: the same vectors each time, none read from two that were just written.
HWY_INLINE void subtract(double x, const double* row, size_t begin, size_t end, size_t n, double* w) {
  for (size_t k = begin / lanes * lanes; k < end; k += lanes) {
    const V factor = k + lanes <= n ? hn::LoadU(D(), row + k) : First{n - k}.load(row + k);
    hn::Store(hn::NegMulAdd(set(x), factor, hn::Load(D(), w + k)), D(), w + k);
  }
}

void cholesky_solve(const double* l, size_t n, double* b) {
  HWY_ALIGN double inverse[max_small_n], forward[max_small_n + lanes] = {}, back[max_small_n + lanes] = {};
  for (size_t i = 0; i < n; ++i) inverse[i] = 1.0 / l[i * n + i];  // ahead of the chain that needs them
  std::copy_n(b, n, forward);
  for (size_t j = 0; j < n; ++j) {
    back[j] = forward[j] * inverse[j];
    subtract(back[j], l + j * n, j + 1, n, n, forward);
  }
  for (size_t j = n; j-- > 0;) {
    b[j] = back[j] * inverse[j];
    subtract(b[j], l + j * n, 0, j, n, back);
  }
}

}  // namespace

const TileKernels& table() {
  static constexpr TileKernels all{elementwise, sum,  dot,  max,         axpy,         row_matvec, row_tmatvec,   matvec,
                                   tmatvec,     gram, pack, panels_gram, panels_solve, cholesky,   cholesky_solve};
  return all;
}

}  // namespace onestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onestep::cpu {

HWY_EXPORT(table);
const TileKernels& tile_kernels() { return HWY_DYNAMIC_DISPATCH(table)(); }

}  // namespace onestep::cpu
#endif
