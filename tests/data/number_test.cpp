// Numbers as text: the short way rounds as the general one does.
#include "data/number.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <string>

#include "data/text.h"
#include "support/random.h"

namespace onestep::test {
namespace {

// The same bits, so that 0 and -0 differ.
bool same(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

TEST(Numbers, ShortDecimalsAreRoundedExactly) {
  Random random(1);
  int fast = 0;
  for (int i = 0; i < 200000; ++i) {
    std::string text = random.flip() ? "-" : "";
    for (std::int64_t k = random.integer(0, 10); k > 0; --k) text += static_cast<char>('0' + random.integer(0, 9));
    if (random.flip()) {
      text += '.';
      for (std::int64_t k = random.integer(0, 10); k > 0; --k) text += static_cast<char>('0' + random.integer(0, 9));
    }
    if (random.integer(0, 2) == 0) text += fmt::format("{}{}", random.flip() ? "e" : "E", random.integer(-30, 30));
    const bool digits = text.find_first_of("0123456789") < text.find_first_of("eE");
    double value = -1;
    const char* end = data::scan_short_decimal(text.data(), text.data() + text.size(), value);
    fast += end != nullptr ? 1 : 0;
    const double expected = std::strtod(text.c_str(), nullptr);
    if (end != nullptr) {
      ASSERT_TRUE(digits && end == text.data() + text.size()) << text;
      ASSERT_TRUE(same(value, expected)) << text;
    }
    const std::optional<double> parsed = data::parse_number(text);
    ASSERT_EQ(parsed.has_value(), digits) << text;
    ASSERT_TRUE(!parsed || same(*parsed, expected)) << text;
  }
  EXPECT_GT(fast, 100000) << "most of them are short";
}

TEST(Numbers, EveryDoubleComesBackFromItsShortestText) {
  Random random(2);
  for (int i = 0; i < 100000; ++i) {
    const auto value = std::bit_cast<double>(
        static_cast<std::uint64_t>(random.integer(0, (std::int64_t{1} << 62) - 1)) << 2 ^ static_cast<std::uint64_t>(i & 3));
    if (!std::isfinite(value)) continue;
    const std::string text = fmt::format("{}", value);
    const std::optional<double> parsed = data::parse_number(text);
    ASSERT_TRUE(parsed && same(*parsed, value)) << text;
  }
}

TEST(Numbers, AreTheWholeText) {
  for (const char* text :
       {"", "+", "-", ".", "1.2.3", "1e", "1e+", "--1", "+-1", "0x10", "1,5", "1 ", " 1", "nan", "1e99999"})
    EXPECT_FALSE(data::parse_number(text)) << text;
  EXPECT_FALSE(data::parse_number({}));
  for (const char* text : {"+1.5", "1.5", "15e-1", "0.15E+1", "1.5D0", "1.50000000000000000000000", "+.15e1"})
    EXPECT_EQ(data::parse_number(text), 1.5) << text;
}

}  // namespace
}  // namespace onestep::test
