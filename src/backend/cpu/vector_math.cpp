// This file is compiled once for each instruction set; the loops over tiles are made from the table of operations and the
// kernels of vector_math-inl.h.

#include "backend/cpu/vector_math.h"

#include <algorithm>

// SSSE3 machines without SSE4 are not worth a copy of everything: they take the baseline. Vectors of unknown length cannot
// be kept in arrays.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/vector_math.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which defines what they need.
#include "backend/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace onestep::cpu::HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<double>;
using V = hn::Vec<D>;

// The entries of an operand as they come: a scalar is repeated in a buffer one vector long that is read again and again, so
// that one loop serves every combination of scalars and tiles. The buffer is kept apart for the sake of the optimiser, which
// then knows that no store reaches the pointer.
struct Repeated {
  HWY_ALIGN double entries[hn::MaxLanes(D())];
};

class Stream {
 public:
  HWY_INLINE Stream(const Operand& operand, Repeated& buffer) : next_(operand.data), step_(hn::Lanes(D())) {
    if (operand.scalar) {
      hn::Store(hn::Set(D(), *operand.data), D(), buffer.entries);
      next_ = buffer.entries;
      step_ = 0;
    }
  }
  HWY_INLINE V take() {
    const V v = hn::LoadU(D(), next_);
    next_ += step_;
    return v;
  }
  HWY_INLINE V take_last(std::size_t count) const { return load_tail(D(), next_, count); }

 private:
  const double* next_;
  std::size_t step_;
};

template <class Kernel, class... Streams> HWY_INLINE void map(double* out, std::size_t n, Streams... streams) {
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(Kernel::run(d, streams.take()...), d, out + i);
  if (i < n) store_tail(d, Kernel::run(d, streams.take_last(n - i)...), out + i, n - i);
}

// One tile kernel for each elementwise row. A row without a function of its name in vector_math-inl.h does not compile.
#define ONESTEP_UNARY(name, ...)                                      \
  struct Kernel_##name {                                              \
    static HWY_INLINE V run(D d, V a) { return kernel::name(d, a); }  \
  };                                                                  \
  void tile_##name(const Operand* args, double* out, std::size_t n) { \
    Repeated a;                                                       \
    map<Kernel_##name>(out, n, Stream(args[0], a));                   \
  }
#define ONESTEP_BINARY(name, ...)                                            \
  struct Kernel_##name {                                                     \
    static HWY_INLINE V run(D d, V a, V b) { return kernel::name(d, a, b); } \
  };                                                                         \
  void tile_##name(const Operand* args, double* out, std::size_t n) {        \
    Repeated a, b;                                                           \
    map<Kernel_##name>(out, n, Stream(args[0], a), Stream(args[1], b));      \
  }
#define ONESTEP_TERNARY(name, ...)                                                          \
  struct Kernel_##name {                                                                    \
    static HWY_INLINE V run(D d, V a, V b, V c) { return kernel::name(d, a, b, c); }        \
  };                                                                                        \
  void tile_##name(const Operand* args, double* out, std::size_t n) {                       \
    Repeated a, b, c;                                                                       \
    map<Kernel_##name>(out, n, Stream(args[0], a), Stream(args[1], b), Stream(args[2], c)); \
  }
#include "onestep/operations.def"

// Four accumulators hide the latency of addition; they are joined in a fixed order.
template <class Term> HWY_INLINE double reduce_sum(Term term, std::size_t n) {
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = term.add(s0, i);
    s1 = term.add(s1, i + lanes);
    s2 = term.add(s2, i + 2 * lanes);
    s3 = term.add(s3, i + 3 * lanes);
  }
  for (; i + lanes <= n; i += lanes) s0 = term.add(s0, i);
  if (i < n) s1 = term.add_last(s1, i, n - i);
  return hn::GetLane(hn::SumOfLanes(d, (s0 + s1) + (s2 + s3)));
}

struct SumTerm {
  const double* x;
  HWY_INLINE V add(V sum, std::size_t i) const { return sum + hn::LoadU(D(), x + i); }
  HWY_INLINE V add_last(V sum, std::size_t i, std::size_t count) const { return sum + load_tail(D(), x + i, count); }
};

struct DotTerm {
  const double* x;
  const double* y;
  HWY_INLINE V add(V sum, std::size_t i) const { return hn::MulAdd(hn::LoadU(D(), x + i), hn::LoadU(D(), y + i), sum); }
  HWY_INLINE V add_last(V sum, std::size_t i, std::size_t count) const {
    return hn::MulAdd(load_tail(D(), x + i, count), load_tail(D(), y + i, count), sum);
  }
};

HWY_INLINE V larger_or_nan(V largest, V x) { return hn::IfThenElse(hn::Or(hn::Gt(x, largest), hn::IsNaN(x)), x, largest); }

}  // namespace

TileKernel find_kernel(Op op) {
  switch (op) {
#define ONESTEP_UNARY(name, ...) \
  case Op::name:                 \
    return &tile_##name;
#define ONESTEP_BINARY(name, ...) ONESTEP_UNARY(name)
#define ONESTEP_TERNARY(name, ...) ONESTEP_UNARY(name)
#include "onestep/operations.def"
    default: return nullptr;
  }
}

double sum(const double* x, std::size_t n) { return reduce_sum(SumTerm{x}, n); }

double dot(const double* x, const double* y, std::size_t n) { return reduce_sum(DotTerm{x, y}, n); }

double max(const double* x, std::size_t n) {
  const D d;
  const std::size_t lanes = hn::Lanes(d);
  V m0 = hn::Set(d, -kernel::infinity), m1 = m0;
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    m0 = larger_or_nan(m0, hn::LoadU(d, x + i));
    m1 = larger_or_nan(m1, hn::LoadU(d, x + i + lanes));
  }
  for (; i + lanes <= n; i += lanes) m0 = larger_or_nan(m0, hn::LoadU(d, x + i));
  if (i < n) m1 = larger_or_nan(m1, load_tail(d, x + i, n - i, -kernel::infinity));
  HWY_ALIGN double all[hn::MaxLanes(D())];
  hn::Store(larger_or_nan(m0, m1), d, all);
  double largest = all[0];
  for (std::size_t k = 1; k < lanes; ++k) {
    if (all[k] > largest || all[k] != all[k]) largest = all[k];
  }
  return largest;
}

void axpy(double alpha, const double* x, double* y, std::size_t n) {
  const D d;
  const V va = hn::Set(d, alpha);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    hn::StoreU(hn::MulAdd(va, hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
  }
  if (i < n) store_tail(d, hn::MulAdd(va, load_tail(d, x + i, n - i), load_tail(d, y + i, n - i)), y + i, n - i);
}

}  // namespace onestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onestep::cpu {

HWY_EXPORT(find_kernel);
HWY_EXPORT(sum);
HWY_EXPORT(dot);
HWY_EXPORT(max);
HWY_EXPORT(axpy);

TileKernel tile_kernel(Op op) { return HWY_DYNAMIC_DISPATCH(find_kernel)(op); }
double tile_sum(const double* x, std::size_t n) { return HWY_DYNAMIC_DISPATCH(sum)(x, n); }
double tile_dot(const double* x, const double* y, std::size_t n) { return HWY_DYNAMIC_DISPATCH(dot)(x, y, n); }
double tile_max(const double* x, std::size_t n) { return HWY_DYNAMIC_DISPATCH(max)(x, n); }
void tile_axpy(double alpha, const double* x, double* y, std::size_t n) { HWY_DYNAMIC_DISPATCH(axpy)(alpha, x, y, n); }

}  // namespace onestep::cpu
#endif
