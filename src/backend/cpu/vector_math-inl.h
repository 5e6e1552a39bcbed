// The elementwise kernels, one function for each elementwise row of the table of operations and of the same name, written on
// Highway vectors. To add an operation, add its row and its function here. tile_kernels.cpp includes this file once for each
// instruction set: it has no guard.
//
// The largest errors found over 10^7 random arguments (of the last five: over 10^6) and every special one, in ulp, the worst
// of all instruction sets, and in brackets what vector_math_test.cpp holds them to. Subnormals are as good; everything else
// is rounded as C++ does it.
//
//   exp 1.1 [1.2]   expm1 1.7 [2]   log 1.0 [1.1]   log1p 1.0 [1.1]   tanh 2.5 [4]   sigmoid 2.4 [4]   softplus 2.1 [4]
//   erf 1.4 [2]   sin 0.9 [1]   cos 0.9 [1]   atan 1.8 [2]   tan 2.2 [3]   asin 2.9 [4]
//   acos 2.5 [4]   sinh 2.9 [4]   cosh 3.4 [4]

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onestep::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<double>;
using V = hn::Vec<D>;
using Bits = hn::RebindToUnsigned<D>;

inline constexpr std::size_t lanes = hn::MaxLanes(D());
inline constexpr double infinity = std::numeric_limits<double>::infinity();

HWY_INLINE V set(double x) { return hn::Set(D(), x); }
HWY_INLINE V zero() { return hn::Zero(D()); }

// What of a vector is in memory: all of it, or at the end of an array only the first `count` lanes, 0 < count < lanes. The
// others load as `rest`, and nothing past the end is touched.
struct Whole {
  HWY_INLINE V load(const double* p, double = 0) const { return hn::LoadU(D(), p); }
  HWY_INLINE void store(V v, double* p) const { hn::StoreU(v, D(), p); }
};
struct First {
  std::size_t count;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  HWY_INLINE V load(const double* p, double rest = 0) const {
    return hn::IfThenElse(hn::FirstN(D(), count), hn::MaskedLoad(hn::FirstN(D(), count), D(), p), set(rest));
  }
  HWY_INLINE void store(V v, double* p) const { hn::BlendedStore(v, hn::FirstN(D(), count), D(), p); }
#else
  static_assert(lanes <= 2);
  HWY_INLINE V load(const double* p, double rest = 0) const {
    return hn::IfThenElse(hn::FirstN(D(), 1), set(*p), set(rest));
  }
  HWY_INLINE void store(V v, double* p) const { *p = hn::GetLane(v); }
#endif
};

// Calls body(i, Whole or First) for the vectors that begin at entries i of [begin, end).
template <class Body> HWY_INLINE void each_vector(std::size_t begin, std::size_t end, Body body) {
  for (; begin + lanes <= end; begin += lanes) body(begin, Whole{});
  if (begin < end) body(begin, First{end - begin});
}

namespace kernel {

// log 2 in two parts; the first has 32 bits, so that its product with any exponent is exact.
inline constexpr double log2_high = 0x1.62e42feep-1;
inline constexpr double log2_low = 0x1.a39ef35793c76p-33;

// The minimax polynomials below were fitted by the Remez exchange in 60 digits; the error stands beside each.

// (exp(r) - 1 - r) / r² for |r| <= log(2)/2; r² times the error is below 2^-64.
inline constexpr double exp_coefficients[] = {0x1.0000000000000p-1,  0x1.555555555555cp-3,  0x1.555555555555ep-5,
                                              0x1.111111110ebb3p-7,  0x1.6c16c16c135d7p-10, 0x1.a01a01b3bb1f9p-13,
                                              0x1.a01a01b440f32p-16, 0x1.71ddef93c9a24p-19, 0x1.27e4bf57aaac4p-22,
                                              0x1.af6ccce91d14ap-26, 0x1.1f9db87011bfcp-29};

// (log((1+s)/(1-s)) / s - 2) / s² in z = s², relative error of the logarithm. For 1/√2 <= (1+s)/(1-s) <= √2: 2^-59.5
inline constexpr double log_coefficients[] = {0x1.5555555555592p-1, 0x1.999999997fd7bp-2, 0x1.24924941f4d3cp-2,
                                              0x1.c71c52061df4ep-3, 0x1.74663f9f7d99cp-3, 0x1.39a1a71030038p-3,
                                              0x1.2f063519fa177p-3};
// The same for 1 <= (1+s)/(1-s) <= 2: 2^-59.4
inline constexpr double log_1_to_2_coefficients[] = {
    0x1.5555555555535p-1, 0x1.99999999a085ap-2, 0x1.249249208493cp-2, 0x1.c71c742001f4cp-3, 0x1.745cb38a5a75fp-3,
    0x1.3b1de4a024deep-3, 0x1.1067545a77277p-3, 0x1.efdece73f0026p-4, 0x1.55967c38d7918p-4, 0x1.5c8fe3fa66e9dp-3};

// (sin(r)/r - 1) / r² and (cos(r) - 1 + r²/2) / r⁴ in r² for |r| <= π/4, error of sin(r)/r and cos(r): 2^-58.0, 2^-64.2
inline constexpr double sin_coefficients[] = {-0x1.5555555555549p-3, 0x1.111111110f87ep-7,   -0x1.a01a019c12028p-13,
                                              0x1.71de357814538p-19, -0x1.ae5e66862934cp-26, 0x1.5d93178dc207cp-33};
inline constexpr double cos_coefficients[] = {0x1.555555555554cp-5,   -0x1.6c16c16c15181p-10, 0x1.a01a019cb2186p-16,
                                              -0x1.27e4f80a34ad5p-22, 0x1.1ee9ec1907cf7p-29,  -0x1.8faeb606d8048p-37};

// (atan(t)/t - 1) / t² in t² for |t| <= tan(π/8); relative error of atan 2^-59.5
inline constexpr double atan_coefficients[] = {-0x1.555555555553dp-2, 0x1.99999999958eap-3,  -0x1.24924922b11c9p-3,
                                               0x1.c71c70e7a15d1p-4,  -0x1.745cf90b0ab9dp-4, 0x1.3b111c63d2e5bp-4,
                                               -0x1.10ebdd983ef32p-4, 0x1.df11672da69dap-5,  -0x1.9cdc255224057p-5,
                                               0x1.37ed3bbb91931p-5,  -0x1.259d3d85c89e0p-6};

// erf(x)/x - 1 in x² for |x| <= 1, relative error of erf 2^-62.7; and exp(x²) erfc(x) in (x-3)/(x+3) for 1 <= x <= 6, error
// of erf 2^-61.3
inline constexpr double erf_coefficients[] = {
    0x1.06eba8214db69p-3,   -0x1.812746b0379e6p-2,  0x1.ce2f21a042b20p-4,   -0x1.b82ce3128499cp-6, 0x1.565bcd0db02c7p-8,
    -0x1.c02db3d8ecdbep-11, 0x1.f9a321a116d34p-14,  -0x1.f4d1df38db4aep-17, 0x1.b9def1995c1e6p-20, -0x1.5f1d36a3432d6p-23,
    0x1.f7a4112daf135p-27,  -0x1.386abe81bc097p-30, 0x1.0579a69d4bb26p-34};
inline constexpr double erfc_coefficients[] = {
    0x1.6e9827d229d2fp-3,  -0x1.4e102b9cf8de6p-2,  0x1.f6ff2040ddd1ep-3,  -0x1.336ffbf093bafp-3,  0x1.258b13c0bc6c5p-4,
    -0x1.8fa584ac70ceap-6, 0x1.17c9d6e4f82d5p-8,   0x1.735b2819e8136p-11, -0x1.37f391c853ffcp-11, 0x1.a543462837a29p-15,
    0x1.2c6993a2593edp-14, -0x1.b04031c94d402p-18, -0x1.b989b1978ecb0p-18};

// c[0] + c[1] x + ... by Estrin's scheme, which keeps the chain of dependent operations short.
template <std::size_t From, std::size_t Count, std::size_t N>
HWY_INLINE V polynomial_part(const double (&c)[N], V x, V x2, V x4, V x8) {
  if constexpr (Count == 1) {
    return set(c[From]);
  } else {
    constexpr std::size_t half = std::bit_floor(Count - 1);
    const V power = half == 1 ? x : half == 2 ? x2 : half == 4 ? x4 : x8;
    return hn::MulAdd(power, polynomial_part<From + half, Count - half>(c, x, x2, x4, x8),
                      polynomial_part<From, half>(c, x, x2, x4, x8));
  }
}
template <std::size_t N> HWY_INLINE V polynomial(const double (&c)[N], V x) {
  static_assert(N <= 16);
  const V x2 = x * x, x4 = x2 * x2;
  return polynomial_part<0, N>(c, x, x2, x4, x4 * x4);
}

// x where it is within the limit or NaN. Highway's Min and Max lose a NaN on some targets; x86 returns its second operand.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_SSE4
HWY_INLINE V at_most(double limit, V x) { return hn::Min(set(limit), x); }
HWY_INLINE V at_least(double limit, V x) { return hn::Max(set(limit), x); }
#else
HWY_INLINE V at_most(double limit, V x) { return hn::IfThenElse(hn::Gt(x, set(limit)), set(limit), x); }
HWY_INLINE V at_least(double limit, V x) { return hn::IfThenElse(hn::Lt(x, set(limit)), set(limit), x); }
#endif

// f(a, b), entry by entry.
template <class F> HWY_INLINE V by_entry(V a, V b, F f) {
  HWY_ALIGN double x[lanes];
  HWY_ALIGN double y[lanes];
  hn::Store(a, D(), x);
  hn::Store(b, D(), y);
  for (std::size_t i = 0; i < lanes; ++i) x[i] = f(x[i], y[i]);
  return hn::Load(D(), x);
}

// The bits of e as the exponent of a number: 2^(e - 1023).
HWY_INLINE V power_of_two(hn::Vec<Bits> e) { return hn::BitCast(D(), hn::ShiftLeft<52>(e)); }

// x = n log 2 + r with |r| <= log(2)/2, and exp(r) = 1 + r + r² q. The lowest bits of `shifted` hold n + bias. |x| < 2^20.
struct ReducedExp {
  hn::Vec<Bits> shifted;
  V n, r, r2, q;
};
HWY_INLINE ReducedExp reduce_exp(V x, double bias) {
  const V shift = set(0x1.8p52 + bias);  // adding it rounds to an integer
  const V shifted = hn::MulAdd(x, set(0x1.71547652b82fep+0), shift), n = shifted - shift;
  const V r = hn::NegMulAdd(n, set(log2_low), hn::NegMulAdd(n, set(log2_high), x));
  return {hn::BitCast(Bits(), shifted), n, r, r * r, polynomial(exp_coefficients, r)};
}

// exp(x) for -746 <= x <= 710, beyond which it is 0 or infinity. Scaling by 2^n, in two halves where there is no instruction
// for it, passes through both ends and rounds once.
HWY_INLINE V exp_within(V x) {
  const auto e = reduce_exp(x, 2046.0);
  const V y = set(1.0) + hn::MulAdd(e.r2, e.q, e.r);
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  return V{_mm512_scalef_pd(y.raw, e.n.raw)};
#else
  return y * power_of_two(hn::ShiftRight<1>(e.shifted)) * power_of_two(e.shifted - hn::ShiftRight<1>(e.shifted));
#endif
}
HWY_INLINE V exp_of_minus_abs(V a) { return exp_within(at_least(-746.0, hn::Neg(hn::Abs(a)))); }

// exp(x) - 1 for -40 <= x <= 710. The largest parts are added first: their sum is exact where they cancel.
HWY_INLINE V expm1_within(V x) {
  const auto e = reduce_exp(x, 1022.0);
  const V half = power_of_two(e.shifted);  // 2^n / 2: 2^1024 would overflow
  const V y = hn::MulAdd(half, e.r2 * e.q, hn::MulAdd(half, e.r, half - set(0.5)));
  return hn::IfThenElse(hn::Lt(hn::Abs(x), set(0x1p-54)), x, y + y);
}

// k log 2 + log(1 + f) + correction for 1/√2 <= 1 + f <= √2.
HWY_INLINE V log_of_parts(V k, V f, V correction) {
  const V s = f / (set(2.0) + f), z = s * s;
  const V tail = s * hn::NegMulAdd(z, polynomial(log_coefficients, z), f);  // f - log(1 + f)
  return hn::MulAdd(k, set(log2_high), f - (tail - hn::MulAdd(k, set(log2_low), correction)));
}

// What the logarithm of u is where u is zero, negative, infinite or not a number; y elsewhere.
HWY_INLINE V log_special(V u, V y) {
  y = hn::IfThenElse(hn::Lt(u, set(infinity)), y, u);
  y = hn::IfThenElse(hn::Eq(u, zero()), set(-infinity), y);
  return hn::IfThenElse(hn::Lt(u, zero()), set(std::numeric_limits<double>::quiet_NaN()), y);
}

// u = 2^k m with 1/√2 <= m < √2 for normal u > 0; `exponent` holds k + 1023 as an integer.
struct Binary {
  V m;
  hn::Vec<Bits> exponent;
  // The exponent as a floating point number, less `bias`, which includes 2^52.
  HWY_INLINE V value_less(V bias) const {
    return hn::BitCast(D(), hn::Or(exponent, hn::Set(Bits(), std::bit_cast<std::uint64_t>(0x1p52)))) - bias;
  }
};
HWY_INLINE Binary split_binary(V u) {
  const auto half_root = hn::Set(Bits(), std::bit_cast<std::uint64_t>(0x1.6a09e667f3bcdp-1));
  const auto one = hn::Set(Bits(), std::bit_cast<std::uint64_t>(1.0));
  const auto bits = hn::BitCast(Bits(), u) + (one - half_root);
  const auto mantissa = hn::And(bits, hn::Set(Bits(), (std::uint64_t{1} << 52) - 1));
  return {hn::BitCast(D(), mantissa + half_root), hn::ShiftRight<52>(bits)};
}

// sin(a), or cos(a) = sin(a + π/2). a = n π/2 + r with π/2 in three parts, the first two of 33 bits, so that their products
// with n are exact. Entries beyond 10^6 go to the C library one by one.
template <bool Cosine> HWY_INLINE V sine_or_cosine(V a) {
  const V shift = set(0x1.8p52);  // adding it rounds to an integer
  const V shifted = hn::MulAdd(a, set(0x1.45f306dc9c883p-1), shift), n = shifted - shift;
  const V first = hn::NegMulAdd(n, set(0x1.921fb544p+0), a), second = n * set(0x1.0b4611a6p-34), high = first - second;
  const V low = hn::MulSub(n, set(0x1.3198a2e037073p-69), (first - high) - second);
  const V r = high - low, lost = (high - r) - low;  // the angle is r + lost
  const V z = r * r, half_z = set(0.5) * z, about = set(1.0) - half_z;
  const V cosine = about + (((set(1.0) - about) - half_z) + hn::NegMulAdd(r, lost, z * z * polynomial(cos_coefficients, z)));
  const V sine = r + hn::MulAdd(lost, cosine, r * z * polynomial(sin_coefficients, z));
  auto quadrant = hn::BitCast(Bits(), shifted);
  if constexpr (Cosine) quadrant = quadrant + hn::Set(Bits(), 1);
  const auto odd = hn::RebindMask(D(), hn::TestBit(quadrant, hn::Set(Bits(), 1)));
  const V sign = hn::And(hn::BitCast(D(), hn::ShiftLeft<62>(quadrant)), hn::SignBit(D()));
  V y = hn::Xor(hn::IfThenElse(odd, cosine, sine), sign);
  if constexpr (!Cosine) y = hn::IfThenElse(hn::Lt(hn::Abs(a), set(0x1p-27)), a, y);
  if (hn::AllFalse(D(), hn::Gt(hn::Abs(a), set(1e6)))) return y;
  return by_entry(a, y, [](double x, double near) {
    return !(std::fabs(x) > 1e6) ? near : Cosine ? std::cos(x) : std::sin(x);
  });
}

HWY_INLINE V one_where(hn::Mask<D> mask) { return hn::IfThenElseZero(mask, set(1.0)); }

// ---- the rows of the table ----

HWY_INLINE V add(V a, V b) { return a + b; }
HWY_INLINE V sub(V a, V b) { return a - b; }
HWY_INLINE V mul(V a, V b) { return a * b; }
HWY_INLINE V div(V a, V b) { return a / b; }
HWY_INLINE V pow(V a, V b) {
  return by_entry(a, b, [](double x, double y) { return std::pow(x, y); });
}
HWY_INLINE V hypot(V a, V b) {
  return by_entry(a, b, [](double x, double y) { return std::hypot(x, y); });
}
HWY_INLINE V atan2(V a, V b) {
  return by_entry(a, b, [](double y, double x) { return std::atan2(y, x); });
}
HWY_INLINE V cbrt(V a) {
  return by_entry(a, a, [](double x, double) { return std::cbrt(x); });
}
HWY_INLINE V maximum(V a, V b) { return hn::IfThenElse(hn::Or(hn::Ge(a, b), hn::IsNaN(a)), a, b); }
HWY_INLINE V minimum(V a, V b) { return hn::IfThenElse(hn::Or(hn::Le(a, b), hn::IsNaN(a)), a, b); }
HWY_INLINE V less(V a, V b) { return one_where(hn::Lt(a, b)); }
HWY_INLINE V less_equal(V a, V b) { return one_where(hn::Le(a, b)); }
HWY_INLINE V greater(V a, V b) { return one_where(hn::Gt(a, b)); }
HWY_INLINE V greater_equal(V a, V b) { return one_where(hn::Ge(a, b)); }
HWY_INLINE V equal(V a, V b) { return one_where(hn::Eq(a, b)); }
HWY_INLINE V not_equal(V a, V b) { return hn::IfThenZeroElse(hn::Eq(a, b), set(1.0)); }  // Ne is false for NaN on AVX
HWY_INLINE V where(V a, V b, V c) { return hn::IfThenElse(hn::Eq(a, zero()), c, b); }

HWY_INLINE V stop_gradient(V a) { return a; }
HWY_INLINE V arbitrary(V a) { return a; }
HWY_INLINE V neg(V a) { return hn::Neg(a); }
HWY_INLINE V sqrt(V a) { return hn::Sqrt(a); }
HWY_INLINE V square(V a) { return a * a; }
HWY_INLINE V abs(V a) { return hn::Abs(a); }
HWY_INLINE V sign(V a) { return hn::IfThenElse(hn::Or(hn::Gt(a, zero()), hn::Lt(a, zero())), hn::CopySign(set(1.0), a), a); }
HWY_INLINE V exp(V a) { return exp_within(at_least(-746.0, at_most(710.0, a))); }
HWY_INLINE V expm1(V a) { return expm1_within(at_least(-40.0, at_most(710.0, a))); }
HWY_INLINE V sin(V a) { return sine_or_cosine<false>(a); }
HWY_INLINE V cos(V a) { return sine_or_cosine<true>(a); }

HWY_INLINE V log(V a) {
  const auto subnormal = hn::Lt(a, set(0x1p-1022));
  const auto parts = split_binary(hn::IfThenElse(subnormal, a * set(0x1p54), a));
  const V k = parts.value_less(hn::IfThenElse(subnormal, set(0x1p52 + 1023 + 54), set(0x1p52 + 1023)));
  return log_special(a, log_of_parts(k, parts.m - set(1.0), zero()));
}

HWY_INLINE V log1p(V a) {
  const V one = set(1.0), u = one + a, rounded = u - one;
  const V lost = (one - (u - rounded)) + (a - rounded);  // 1 + a = u + lost
  const auto parts = split_binary(u);
  const V k = parts.value_less(set(0x1p52 + 1023));
  const auto near_one = hn::Eq(k, zero());
  const V f = hn::IfThenElse(near_one, a, parts.m - one);
  // log(u + lost) = log(u) + lost 2^-k / m, where 1 / m need only be good to 6 %; above 2^1000 `lost` does not count.
  const V correction = lost * power_of_two(hn::Set(Bits(), 2046) - parts.exponent) * (set(1.0607) - f);
  const auto ignore = hn::Or(near_one, hn::Gt(k, set(1000.0)));
  return hn::CopySign(log_special(u, log_of_parts(k, f, hn::IfThenZeroElse(ignore, correction))), a);
}

// expm1(2a) / (expm1(2a) + 2)
HWY_INLINE V tanh(V a) {
  const V e = expm1_within(at_most(40.0, hn::Abs(a + a)));
  return hn::CopySign(e / (e + set(2.0)), a);
}

HWY_INLINE V sigmoid(V a) {
  const V e = exp_of_minus_abs(a);
  return hn::IfThenElse(hn::Ge(a, zero()), set(1.0), e) / (set(1.0) + e);
}

// max(a, 0) + log(1 + e) with e = exp(-|a|) <= 1, which needs no reduction of 1 + e.
HWY_INLINE V softplus(V a) {
  const V e = exp_of_minus_abs(a), s = e / (set(2.0) + e), z = s * s;
  const V log1p_e = hn::NegMulAdd(s, hn::NegMulAdd(z, polynomial(log_1_to_2_coefficients, z), e), e);
  return hn::IfThenElseZero(hn::Gt(a, zero()), a) + log1p_e;
}

// x + x P(x²) to 1, 1 - erfc(x) beyond; from 6 on it is 1.
HWY_INLINE V erf(V a) {
  const V x = at_most(6.0, hn::Abs(a)), z = x * x, t = (x - set(3.0)) / (x + set(3.0));
  const V near = hn::MulAdd(x, polynomial(erf_coefficients, z), x);
  const V far = hn::NegMulAdd(exp_within(hn::Neg(z)), polynomial(erfc_coefficients, t), set(1.0));
  return hn::CopySign(hn::IfThenElse(hn::Lt(x, set(1.0)), near, far), a);
}

// With x = |a|: atan(x) to tan(π/8), π/4 + atan((x-1)/(x+1)) about 1, π/2 - atan(1/x) from tan(3π/8) on.
HWY_INLINE V atan(V a) {
  const V one = set(1.0), x = hn::Abs(a);
  const auto middle = hn::Gt(x, set(0.41421356237309503)), far = hn::Gt(x, set(2.414213562373095));
  const V numerator = hn::IfThenElse(far, set(-1.0), hn::IfThenElse(middle, x - one, x));
  const V t = numerator / hn::IfThenElse(far, x, hn::IfThenElse(middle, x + one, one)), z = t * t;
  const V eighths = hn::IfThenElse(far, set(2.0), hn::IfThenElseZero(middle, one));  // of a turn
  const V low = hn::MulAdd(t * z, polynomial(atan_coefficients, z), eighths * set(0x1.1a62633145c07p-55));
  return hn::CopySign(hn::MulAdd(eighths, set(0x1.921fb54442d18p-1), t + low), a);
}

// a / √(1 - a²) and √((1 - a) / (1 + a)) are the tangents of asin(a) and of acos(a) / 2.
HWY_INLINE V asin(V a) { return kernel::atan(a / hn::Sqrt((set(1.0) - a) * (set(1.0) + a))); }
HWY_INLINE V acos(V a) { return set(2.0) * kernel::atan(hn::Sqrt((set(1.0) - a) / (set(1.0) + a))); }

HWY_INLINE V tan(V a) { return kernel::sin(a) / kernel::cos(a); }

// With e = exp(|a|/2), whose square overflows only where the result does: (e² ± 1/e²) / 2. For sinh from 22 on, where 1/e²
// does not count; below, with m = expm1(|a|), (m + m / (m + 1)) / 2.
HWY_INLINE V cosh(V a) {
  const V e = kernel::exp(set(0.5) * hn::Abs(a)), half = set(0.5) * e;
  return hn::MulAdd(half, e, set(0.5) / (e * e));
}
HWY_INLINE V sinh(V a) {
  const V x = hn::Abs(a), e = kernel::exp(set(0.5) * x), m = expm1_within(at_most(22.0, x));
  const V near = set(0.5) * (m + m / (m + set(1.0)));
  return hn::CopySign(hn::IfThenElse(hn::Gt(x, set(22.0)), set(0.5) * e * e, near), a);
}

}  // namespace kernel
}  // namespace onestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
