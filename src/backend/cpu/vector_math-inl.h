// The elementwise kernels, one function for each elementwise row of the table of operations and of the same name, written on
// Highway vectors and compiled once for each instruction set. To add an operation, add its row and its function here.
//
// The largest errors found over 10^7 random arguments (the last line: 4 10^6) and every special one, in ulp, the worst of
// all instruction sets, and in brackets what vector_math_test.cpp holds them to. Subnormals are as good; everything else is
// rounded as C++ does it.
//
//   exp 1.1 [1.2]   expm1 1.7 [2]   log 1.0 [1.1]   log1p 1.0 [1.1]   tanh 2.5 [4]   sigmoid 2.4 [4]   softplus 2.1 [4]
//   erf 1.4 [2]   sin 0.9 [1]   cos 0.9 [1]   atan 1.8 [2]

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"

#if defined(ONESTEP_BACKEND_CPU_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONESTEP_BACKEND_CPU_VECTOR_MATH_INL_H_
#undef ONESTEP_BACKEND_CPU_VECTOR_MATH_INL_H_
#else
#define ONESTEP_BACKEND_CPU_VECTOR_MATH_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace onestep::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The first `count` lanes of a vector, 0 < count < Lanes(d), without touching memory past them; the others load as `rest`.
template <class D> HWY_INLINE hn::Vec<D> load_tail(D d, const double* p, std::size_t count, double rest = 0.0) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  const auto mask = hn::FirstN(d, count);
  return hn::IfThenElse(mask, hn::MaskedLoad(mask, d, p), hn::Set(d, rest));
#else
  static_assert(hn::MaxLanes(D()) <= 2);
  return hn::IfThenElse(hn::FirstN(d, count), hn::Set(d, *p), hn::Set(d, rest));
#endif
}

template <class D, class V> HWY_INLINE void store_tail([[maybe_unused]] D d, V v, double* p, std::size_t count) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  hn::BlendedStore(v, hn::FirstN(d, count), d, p);
#else
  static_assert(hn::MaxLanes(D()) <= 2);
  if (count == 1) *p = hn::GetLane(v);
#endif
}

namespace kernel {

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

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
template <std::size_t First, std::size_t Count, class D, class V, std::size_t N>
HWY_INLINE V polynomial_part(D d, const double (&c)[N], V x, V x2, V x4, V x8) {
  static_assert(N <= 16);
  if constexpr (Count == 1) {
    return hn::Set(d, c[First]);
  } else {
    constexpr std::size_t half = std::bit_floor(Count - 1);
    const V power = half == 1 ? x : half == 2 ? x2 : half == 4 ? x4 : x8;
    return hn::MulAdd(power, polynomial_part<First + half, Count - half>(d, c, x, x2, x4, x8),
                      polynomial_part<First, half>(d, c, x, x2, x4, x8));
  }
}
template <class D, class V, std::size_t N> HWY_INLINE V polynomial(D d, const double (&c)[N], V x) {
  const V x2 = x * x;
  const V x4 = x2 * x2;
  return polynomial_part<0, N>(d, c, x, x2, x4, x4 * x4);
}

// x where it is within the limit or NaN. Highway's Min and Max lose a NaN on some targets; x86 returns its second operand.
template <class D, class V> HWY_INLINE V at_most(D d, double limit, V x) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_SSE4
  return hn::Min(hn::Set(d, limit), x);
#else
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, limit)), hn::Set(d, limit), x);
#endif
}
template <class D, class V> HWY_INLINE V at_least(D d, double limit, V x) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_SSE4
  return hn::Max(hn::Set(d, limit), x);
#else
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, limit)), hn::Set(d, limit), x);
#endif
}

// x = n log 2 + r with |r| <= log(2)/2, and exp(r) = 1 + r + r² q. The lowest bits of `shifted` hold n + bias. |x| < 2^20.
template <class V> struct ReducedExp { V shifted, r, r2, q; };
template <class D, class V> HWY_INLINE ReducedExp<V> reduce_exp(D d, V x, double bias) {
  const V shift = hn::Set(d, 0x1.8p52 + bias);  // adding it rounds to an integer
  const V shifted = hn::MulAdd(x, hn::Set(d, 0x1.71547652b82fep+0), shift);
  const V n = shifted - shift;
  const V r = hn::NegMulAdd(n, hn::Set(d, log2_low), hn::NegMulAdd(n, hn::Set(d, log2_high), x));
  return {shifted, r, r * r, polynomial(d, exp_coefficients, r)};
}

// exp(x) for -746 <= x <= 710, beyond which it is 0 or infinity. Scaling by 2^n in two halves passes through both ends and
// rounds once.
template <class D, class V> HWY_INLINE V exp_within(D d, V x) {
  const hn::RebindToUnsigned<D> di;
  const auto e = reduce_exp(d, x, 2046.0);
  const auto exponents = hn::BitCast(di, e.shifted);
  const auto first = hn::ShiftRight<1>(exponents);
  const V scale1 = hn::BitCast(d, hn::ShiftLeft<52>(first));
  const V scale2 = hn::BitCast(d, hn::ShiftLeft<52>(exponents - first));
  return (hn::Set(d, 1.0) + hn::MulAdd(e.r2, e.q, e.r)) * scale1 * scale2;
}
template <class D, class V> HWY_INLINE V exp_of_minus_abs(D d, V a) {
  return exp_within(d, at_least(d, -746.0, hn::Neg(hn::Abs(a))));
}

// exp(x) - 1 for -40 <= x <= 710. The largest parts are added first: their sum is exact where they cancel.
template <class D, class V> HWY_INLINE V expm1_within(D d, V x) {
  const hn::RebindToUnsigned<D> di;
  const auto e = reduce_exp(d, x, 1022.0);
  const V half = hn::BitCast(d, hn::ShiftLeft<52>(hn::BitCast(di, e.shifted)));  // 2^n / 2: 2^1024 would overflow
  const V y = hn::MulAdd(half, e.r2 * e.q, hn::MulAdd(half, e.r, half - hn::Set(d, 0.5)));
  return hn::IfThenElse(hn::Lt(hn::Abs(x), hn::Set(d, 0x1p-54)), x, y + y);
}

// k log 2 + log(1 + f) + correction for 1/√2 <= 1 + f <= √2.
template <class D, class V> HWY_INLINE V log_of_parts(D d, V k, V f, V correction) {
  const V s = f / (hn::Set(d, 2.0) + f);
  const V z = s * s;
  const V tail = s * hn::NegMulAdd(z, polynomial(d, log_coefficients, z), f);  // f - log(1 + f)
  const V low = tail - hn::MulAdd(k, hn::Set(d, log2_low), correction);
  return hn::MulAdd(k, hn::Set(d, log2_high), f - low);
}

// sin(a), or cos(a) = sin(a + π/2). a = n π/2 + r with π/2 in three parts, the first two of 33 bits, so that their products
// with n are exact. Entries beyond 10^6 go to the C library one by one.
template <bool Cosine, class D, class V> HWY_INLINE V sine_or_cosine(D d, V a) {
  const hn::RebindToUnsigned<D> di;
  const V one = hn::Set(d, 1.0);
  const V shift = hn::Set(d, 0x1.8p52);  // adding it rounds to an integer
  const V shifted = hn::MulAdd(a, hn::Set(d, 0x1.45f306dc9c883p-1), shift);
  const V n = shifted - shift;
  const V first = hn::NegMulAdd(n, hn::Set(d, 0x1.921fb544p+0), a);
  const V second = n * hn::Set(d, 0x1.0b4611a6p-34);
  const V high = first - second;
  const V low = hn::MulSub(n, hn::Set(d, 0x1.3198a2e037073p-69), (first - high) - second);
  const V r = high - low;
  const V lost = (high - r) - low;  // the angle is r + lost
  const V z = r * r;
  const V half_z = hn::Set(d, 0.5) * z;
  const V about = one - half_z;
  const V cosine = about + (((one - about) - half_z) + hn::NegMulAdd(r, lost, z * z * polynomial(d, cos_coefficients, z)));
  const V sine = r + hn::MulAdd(lost, cosine, r * z * polynomial(d, sin_coefficients, z));
  auto quadrant = hn::BitCast(di, shifted);
  if constexpr (Cosine) quadrant = quadrant + hn::Set(di, 1);
  const auto odd = hn::RebindMask(d, hn::TestBit(quadrant, hn::Set(di, 1)));
  const V sign = hn::And(hn::BitCast(d, hn::ShiftLeft<62>(quadrant)), hn::SignBit(d));
  V y = hn::Xor(hn::IfThenElse(odd, cosine, sine), sign);
  if constexpr (!Cosine) y = hn::IfThenElse(hn::Lt(hn::Abs(a), hn::Set(d, 0x1p-27)), a, y);
  const auto large = hn::Gt(hn::Abs(a), hn::Set(d, 1e6));
  if (!hn::AllFalse(d, large)) {
    HWY_ALIGN double in[hn::MaxLanes(D())];
    HWY_ALIGN double out[hn::MaxLanes(D())];
    hn::Store(a, d, in);
    hn::Store(y, d, out);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) {
      if (std::fabs(in[i]) > 1e6) out[i] = Cosine ? std::cos(in[i]) : std::sin(in[i]);
    }
    y = hn::Load(d, out);
  }
  return y;
}

// What the logarithm of u is where u is zero, negative, infinite or not a number; y elsewhere.
template <class D, class V> HWY_INLINE V log_special(D d, V u, V y) {
  y = hn::IfThenElse(hn::Lt(u, hn::Set(d, infinity)), y, u);
  y = hn::IfThenElse(hn::Eq(u, hn::Zero(d)), hn::Set(d, -infinity), y);
  return hn::IfThenElse(hn::Lt(u, hn::Zero(d)), hn::Set(d, not_a_number), y);
}

// u = 2^k m with 1/√2 <= m < √2 for normal u > 0; `exponent` holds k + 1023 as an integer.
template <class V, class VI> struct Binary {
  V m;
  VI exponent;
};
template <class D, class V, class DI = hn::RebindToUnsigned<D>> HWY_INLINE Binary<V, hn::Vec<DI>> split_binary(D d, V u) {
  const DI di;
  const auto half_root = hn::Set(di, std::bit_cast<std::uint64_t>(0x1.6a09e667f3bcdp-1));
  const auto one = hn::Set(di, std::bit_cast<std::uint64_t>(1.0));
  const auto bits = hn::BitCast(di, u) + (one - half_root);
  const auto mantissa = hn::And(bits, hn::Set(di, (std::uint64_t{1} << 52) - 1));
  return {hn::BitCast(d, mantissa + half_root), hn::ShiftRight<52>(bits)};
}
// The exponent as a floating point number, less `bias`, which includes 2^52.
template <class D, class VI> HWY_INLINE hn::Vec<D> exponent_value(D d, VI exponent, hn::Vec<D> bias) {
  const hn::RebindToUnsigned<D> di;
  return hn::BitCast(d, hn::Or(exponent, hn::Set(di, std::bit_cast<std::uint64_t>(0x1p52)))) - bias;
}

template <class D> HWY_INLINE hn::Vec<D> one_where(D d, hn::Mask<D> mask) {
  return hn::IfThenElseZero(mask, hn::Set(d, 1.0));
}

// ---- binary ----

template <class D, class V> HWY_INLINE V add(D, V a, V b) { return a + b; }
template <class D, class V> HWY_INLINE V sub(D, V a, V b) { return a - b; }
template <class D, class V> HWY_INLINE V mul(D, V a, V b) { return a * b; }
template <class D, class V> HWY_INLINE V div(D, V a, V b) { return a / b; }
template <class D, class V> HWY_INLINE V pow(D d, V a, V b) {
  HWY_ALIGN double x[hn::MaxLanes(D())];
  HWY_ALIGN double y[hn::MaxLanes(D())];
  hn::Store(a, d, x);
  hn::Store(b, d, y);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) x[i] = std::pow(x[i], y[i]);
  return hn::Load(d, x);
}
template <class D, class V> HWY_INLINE V maximum(D, V a, V b) {
  return hn::IfThenElse(hn::Or(hn::Ge(a, b), hn::IsNaN(a)), a, b);
}
template <class D, class V> HWY_INLINE V minimum(D, V a, V b) {
  return hn::IfThenElse(hn::Or(hn::Le(a, b), hn::IsNaN(a)), a, b);
}
template <class D, class V> HWY_INLINE V less(D d, V a, V b) { return one_where(d, hn::Lt(a, b)); }
template <class D, class V> HWY_INLINE V less_equal(D d, V a, V b) { return one_where(d, hn::Le(a, b)); }
template <class D, class V> HWY_INLINE V greater(D d, V a, V b) { return one_where(d, hn::Gt(a, b)); }
template <class D, class V> HWY_INLINE V greater_equal(D d, V a, V b) { return one_where(d, hn::Ge(a, b)); }
template <class D, class V> HWY_INLINE V equal(D d, V a, V b) { return one_where(d, hn::Eq(a, b)); }
template <class D, class V> HWY_INLINE V not_equal(D d, V a, V b) {
  return hn::IfThenZeroElse(hn::Eq(a, b), hn::Set(d, 1.0));  // Ne is false for NaN on AVX
}

// ---- ternary ----

template <class D, class V> HWY_INLINE V where(D d, V a, V b, V c) { return hn::IfThenElse(hn::Eq(a, hn::Zero(d)), c, b); }

// ---- unary ----

template <class D, class V> HWY_INLINE V neg(D, V a) { return hn::Neg(a); }

template <class D, class V> HWY_INLINE V exp(D d, V a) { return exp_within(d, at_least(d, -746.0, at_most(d, 710.0, a))); }
template <class D, class V> HWY_INLINE V expm1(D d, V a) {
  return expm1_within(d, at_least(d, -40.0, at_most(d, 710.0, a)));
}

template <class D, class V> HWY_INLINE V log(D d, V a) {
  const auto subnormal = hn::Lt(a, hn::Set(d, 0x1p-1022));
  const auto parts = split_binary(d, hn::IfThenElse(subnormal, a * hn::Set(d, 0x1p54), a));
  const V bias = hn::IfThenElse(subnormal, hn::Set(d, 0x1p52 + 1023 + 54), hn::Set(d, 0x1p52 + 1023));
  const V k = exponent_value(d, parts.exponent, bias);
  return log_special(d, a, log_of_parts(d, k, parts.m - hn::Set(d, 1.0), hn::Zero(d)));
}

template <class D, class V> HWY_INLINE V log1p(D d, V a) {
  const hn::RebindToUnsigned<D> di;
  const V one = hn::Set(d, 1.0);
  const V u = one + a;
  const V rounded = u - one;
  const V lost = (one - (u - rounded)) + (a - rounded);  // 1 + a = u + lost
  const auto parts = split_binary(d, u);
  const V k = exponent_value(d, parts.exponent, hn::Set(d, 0x1p52 + 1023));
  const auto near_one = hn::Eq(k, hn::Zero(d));
  const V f = hn::IfThenElse(near_one, a, parts.m - one);
  // log(u + lost) = log(u) + lost 2^-k / m, where 1 / m need only be good to 6 %; above 2^1000 `lost` does not count.
  const V inverse = hn::BitCast(d, hn::ShiftLeft<52>(hn::Set(di, 2046) - parts.exponent));
  const V correction = lost * inverse * (hn::Set(d, 1.0607) - f);
  const auto ignore = hn::Or(near_one, hn::Gt(k, hn::Set(d, 1000.0)));
  const V y = log_of_parts(d, k, f, hn::IfThenZeroElse(ignore, correction));
  return hn::CopySign(log_special(d, u, y), a);
}

template <class D, class V> HWY_INLINE V sqrt(D, V a) { return hn::Sqrt(a); }
template <class D, class V> HWY_INLINE V square(D, V a) { return a * a; }
template <class D, class V> HWY_INLINE V abs(D, V a) { return hn::Abs(a); }
template <class D, class V> HWY_INLINE V sign(D d, V a) {
  const V one = hn::Set(d, 1.0);
  return hn::IfThenElse(hn::Or(hn::Gt(a, hn::Zero(d)), hn::Lt(a, hn::Zero(d))), hn::CopySign(one, a), a);
}

// expm1(2a) / (expm1(2a) + 2)
template <class D, class V> HWY_INLINE V tanh(D d, V a) {
  const V e = expm1_within(d, at_most(d, 40.0, hn::Abs(a + a)));
  return hn::CopySign(e / (e + hn::Set(d, 2.0)), a);
}

template <class D, class V> HWY_INLINE V sigmoid(D d, V a) {
  const V one = hn::Set(d, 1.0);
  const V e = exp_of_minus_abs(d, a);
  return hn::IfThenElse(hn::Ge(a, hn::Zero(d)), one, e) / (one + e);
}

// max(a, 0) + log(1 + e) with e = exp(-|a|) <= 1, which needs no reduction of 1 + e.
template <class D, class V> HWY_INLINE V softplus(D d, V a) {
  const V e = exp_of_minus_abs(d, a);
  const V s = e / (hn::Set(d, 2.0) + e);
  const V z = s * s;
  const V log1p_e = hn::NegMulAdd(s, hn::NegMulAdd(z, polynomial(d, log_1_to_2_coefficients, z), e), e);
  return hn::IfThenElseZero(hn::Gt(a, hn::Zero(d)), a) + log1p_e;
}

// x + x P(x²) to 1, 1 - erfc(x) beyond; from 6 on it is 1.
template <class D, class V> HWY_INLINE V erf(D d, V a) {
  const V one = hn::Set(d, 1.0);
  const V three = hn::Set(d, 3.0);
  const V x = at_most(d, 6.0, hn::Abs(a));
  const V z = x * x;
  const V near = hn::MulAdd(x, polynomial(d, erf_coefficients, z), x);
  const V far = hn::NegMulAdd(exp_within(d, hn::Neg(z)), polynomial(d, erfc_coefficients, (x - three) / (x + three)), one);
  return hn::CopySign(hn::IfThenElse(hn::Lt(x, one), near, far), a);
}

template <class D, class V> HWY_INLINE V sin(D d, V a) { return sine_or_cosine<false>(d, a); }
template <class D, class V> HWY_INLINE V cos(D d, V a) { return sine_or_cosine<true>(d, a); }

// With x = |a|: atan(x) to tan(π/8), π/4 + atan((x-1)/(x+1)) about 1, π/2 - atan(1/x) from tan(3π/8) on.
template <class D, class V> HWY_INLINE V atan(D d, V a) {
  const V one = hn::Set(d, 1.0);
  const V x = hn::Abs(a);
  const auto middle = hn::Gt(x, hn::Set(d, 0.41421356237309503));
  const auto far = hn::Gt(x, hn::Set(d, 2.414213562373095));
  const V numerator = hn::IfThenElse(far, hn::Set(d, -1.0), hn::IfThenElse(middle, x - one, x));
  const V t = numerator / hn::IfThenElse(far, x, hn::IfThenElse(middle, x + one, one));
  const V z = t * t;
  const V eighths = hn::IfThenElse(far, hn::Set(d, 2.0), hn::IfThenElseZero(middle, one));  // of a turn
  const V low = hn::MulAdd(t * z, polynomial(d, atan_coefficients, z), eighths * hn::Set(d, 0x1.1a62633145c07p-55));
  return hn::CopySign(hn::MulAdd(eighths, hn::Set(d, 0x1.921fb54442d18p-1), t + low), a);
}

template <class D, class V> HWY_INLINE V stop_gradient(D, V a) { return a; }

}  // namespace kernel
}  // namespace onestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
