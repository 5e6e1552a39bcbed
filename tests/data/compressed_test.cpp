// Compressed files are read as the plain ones, and damaged ones are refused.
#include <bzlib.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <functional>
#include <string>

#include "data/parse.h"
#include "data/text.h"
#include "onestep/dataset.h"
#include "onestep/qps.h"
#include "support/files.h"
#include "support/random.h"
#include "support/run.h"

namespace onestep::test {
namespace {

using ::testing::HasSubstr;

std::string gzipped(std::string text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string result(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(text.data());
  stream.avail_in = static_cast<unsigned>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<unsigned>(result.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  result.resize(stream.total_out);
  deflateEnd(&stream);
  return result;
}

std::string bzipped(std::string text) {
  std::string result(text.size() + text.size() / 100 + 600, '\0');
  auto length = static_cast<unsigned>(result.size());
  EXPECT_EQ(BZ2_bzBuffToBuffCompress(result.data(), &length, text.data(), static_cast<unsigned>(text.size()), 9, 0, 0),
            BZ_OK);
  result.resize(length);
  return result;
}

struct Compression {
  std::string name;
  std::function<std::string(std::string)> compress;
};
class Compressed : public ::testing::TestWithParam<Compression> {
 protected:
  static std::string unpacked(const std::string& bytes, std::size_t limit = std::size_t{1} << 26) {
    return data::decompress({"test", "F"}, bytes, limit);
  }
};

const std::string program = "NAME p\nROWS\n N c\n E r\nCOLUMNS\n x c 1 r 2\nRHS\n v r 3\nENDATA\n";

TEST_P(Compressed, FilesAreReadAsThePlainOnes) {
  const TemporaryFolder folder;
  const QpsFile file = read_qps(folder.write("no_extension", GetParam().compress(program)));
  EXPECT_EQ(file.name, "p");
  EXPECT_EQ(file.problem.A(0, 0), 2.0);
  EXPECT_TRUE(near(read_libsvm(folder.write("set", GetParam().compress("1 1:2 2:3\n"))).A, Array{{2.0, 3.0}}));
}

TEST_P(Compressed, TextsOfManyPiecesComeBack) {
  Random random(7);
  std::string text;
  for (int i = 0; i < 1000000; ++i) text += static_cast<char>('a' + random.integer(0, 25));
  text += std::string(5000000, 'z');
  EXPECT_TRUE(unpacked(GetParam().compress(text)) == text);
  EXPECT_EQ(unpacked(GetParam().compress("")), "");
}

TEST_P(Compressed, PiecesMayFollowEachOther) {
  EXPECT_EQ(unpacked(GetParam().compress("one ") + GetParam().compress("two")), "one two");
  EXPECT_EQ(unpacked(GetParam().compress("one") + std::string(512, '\0')), "one") << "padding as tape archives have it";
}

TEST_P(Compressed, TruncatedAndDamagedDataAreRefused) {
  const std::string whole = GetParam().compress(program);
  for (std::size_t length = 3; length < whole.size(); ++length)
    EXPECT_NE(error_of([&] { unpacked(whole.substr(0, length)); }), "no error") << length;
  EXPECT_THAT(error_of([&] { unpacked(whole.substr(0, whole.size() - 1)); }),
              HasSubstr("data end early; is the file whole?"));
  std::string damaged = whole;
  damaged[damaged.size() / 2] ^= 0x10;
  damaged[damaged.size() / 2 + 1] ^= 0x10;
  EXPECT_THAT(error_of([&] { unpacked(damaged); }), HasSubstr("[test] F: the "));
}

TEST_P(Compressed, BombsStopAtTheLimit) {
  const std::string bomb = GetParam().compress(std::string(20000000, ' '));
  ASSERT_LT(bomb.size(), 100000u);
  EXPECT_EQ(error_of([&] { unpacked(bomb, 1 << 20); }),
            "[test] F: has more than 1048576 bytes, above the memory limit; raise memory_limit if the machine has it");
}

INSTANTIATE_TEST_SUITE_P(Both, Compressed, ::testing::Values(Compression{"gzip", gzipped}, Compression{"bzip2", bzipped}),
                         [](const auto& tested) { return tested.param.name; });

TEST(PlainFiles, LargerThanTheLimitAreRefused) {
  const TemporaryFolder folder;
  const std::string file = folder.write("long", std::string(1000000, '*'));
  EXPECT_THAT(error_of([&] { read_libsvm(file, std::nullopt, 1000); }), HasSubstr("has more than 1000 bytes,"));
  EXPECT_THAT(error_of([&] { read_qps(file, 16000); }), HasSubstr("has more than 1000 bytes,"));
}

}  // namespace
}  // namespace onestep::test
