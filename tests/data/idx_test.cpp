// The IDX reader: every type, sizes that lie, and Fashion-MNIST where it is installed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/parse.h"
#include "onestep/dataset.h"
#include "support/files.h"
#include "support/run.h"

namespace onestep::test {
namespace {

using ::testing::HasSubstr;

template <class Bits> std::string big_endian(Bits value) {
  std::string bytes;
  for (int shift = 8 * static_cast<int>(sizeof(Bits)) - 8; shift >= 0; shift -= 8)
    bytes += static_cast<char>(static_cast<unsigned char>(value >> shift));
  return bytes;
}
std::string header(int type, const std::vector<std::uint32_t>& sizes) {
  std::string bytes{'\0', '\0', static_cast<char>(type), static_cast<char>(sizes.size())};
  for (const std::uint32_t size : sizes) bytes += big_endian(size);
  return bytes;
}

constexpr std::size_t limit = std::size_t{1} << 24;
Array parse(const std::string& bytes) { return data::parse_idx(bytes, "F", limit); }
std::string error_in(const std::string& bytes, std::size_t memory_limit = limit) {
  return error_of([&] { data::parse_idx(bytes, "F", memory_limit); });
}

TEST(ReadIdx, EveryTypeOfNumber) {
  EXPECT_TRUE(near(parse(header(0x08, {3}) + std::string("\x00\x7f\xff", 3)), Array{0.0, 127.0, 255.0}));
  EXPECT_TRUE(near(parse(header(0x09, {2}) + "\xff\x7f"), Array{-1.0, 127.0}));
  EXPECT_TRUE(near(parse(header(0x0b, {2}) + "\xff\xfe\x01\x02"), Array{-2.0, 258.0}));
  EXPECT_TRUE(near(parse(header(0x0c, {2}) + big_endian(std::uint32_t{0xffffffff}) + big_endian(std::uint32_t{70000})),
                   Array{-1.0, 70000.0}));
  EXPECT_TRUE(near(parse(header(0x0d, {1}) + big_endian(std::bit_cast<std::uint32_t>(-1.5F))), Array{-1.5}));
  EXPECT_TRUE(near(parse(header(0x0e, {1}) + big_endian(std::bit_cast<std::uint64_t>(0.1))), Array{0.1}));
}

TEST(ReadIdx, HigherRanksAreRows) {
  std::string bytes;
  for (char i = 0; i < 12; ++i) bytes += i;
  EXPECT_TRUE(near(parse(header(0x08, {3, 4}) + bytes), parse(header(0x08, {3, 2, 2}) + bytes)));
  EXPECT_TRUE(near(parse(header(0x08, {3, 1, 2, 1, 2}) + bytes),
                   Array{{0.0, 1.0, 2.0, 3.0}, {4.0, 5.0, 6.0, 7.0}, {8.0, 9.0, 10.0, 11.0}}));
}

TEST(ReadIdxErrors, SizesThatLieAreRefusedBeforeAnythingIsAllocated) {
  EXPECT_EQ(error_in(header(0x08, {2, 3}) + "12345"),
            "[read_idx] F: has 5 bytes after its sizes, which make 6; is the file whole?");
  EXPECT_THAT(error_in(header(0x08, {2, 3}) + "1234567"), HasSubstr("has 7 bytes after its sizes, which make 6"));
  EXPECT_THAT(error_in(header(0x0e, {0xffffffff, 0xffffffff, 0xffffffff}) + "12345678"), HasSubstr("has 8 bytes after"));
  EXPECT_THAT(error_in(header(0x0e, std::vector<std::uint32_t>(255, 0xffffffff))), HasSubstr("has 0 bytes after its sizes"));
  EXPECT_THAT(error_in(std::string("\0\0\x08\x03\0\0", 6)), HasSubstr("ends within its 3 sizes; is the file whole?"));
  EXPECT_THAT(error_in(header(0x08, {100}) + std::string(100, 'x'), 799),
              HasSubstr("100 samples of 1 numbers need 8e-07 GB as dense matrices, above the memory limit"));
}

TEST(ReadIdxErrors, WhatIsNotAnIdxFile) {
  EXPECT_EQ(error_in("1 1:2\n"),
            "[read_idx] F: begins with \"1 1:\", not as an IDX file: two zero bytes, a type and a rank of at least 1");
  EXPECT_THAT(error_in(""), HasSubstr("begins with \"\""));
  EXPECT_THAT(error_in(header(0x0a, {1}) + "x"), HasSubstr("not as an IDX file"));
  EXPECT_THAT(error_in(header(0x08, {}) + "x"), HasSubstr("not as an IDX file"));
  EXPECT_EQ(error_in(header(0x08, {0, 3})), "[read_idx] F: there is no sample in it");
  EXPECT_EQ(error_in(header(0x0d, {2}) + big_endian(0x3f800000U) + big_endian(0x7fc00000U)),
            "[read_idx] F: number 2 is nan, not finite");
}

TEST(ReadIdx, ImagesAndLabelsHaveToBeAsMany) {
  const TemporaryFolder folder;
  const std::string images = folder.write("images", header(0x08, {2, 1, 2}) + "abcd"),
                    labels = folder.write("labels", header(0x08, {2}) + "\x01\x02"),
                    more = folder.write("more", header(0x08, {3}) + "\x01\x02\x03");
  const Dataset d = read_idx(images, labels);
  EXPECT_TRUE(near(d.A, Array{{97.0, 98.0}, {99.0, 100.0}}));
  EXPECT_TRUE(near(d.y, Array{1.0, 2.0}));
  EXPECT_EQ(error_of([&] { read_idx(images, more); }),
            fmt::format("[read_idx] {}: has 2 samples, but {} has 3 labels", images, more));
  EXPECT_THAT(error_of([&] { read_idx(labels, images); }), HasSubstr("are these the labels, not the images?"));
  EXPECT_THAT(error_of([&] { read_idx(images, images); }), HasSubstr("has 2 numbers for each sample; labels are one"));
}

TEST(ReadIdx, FashionMnist) {
  const std::filesystem::path folder = "/usr/share/datasets/fashion-mnist";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "the package dataset-fashion-mnist is not installed";
  const Dataset d = read_dataset((folder / "t10k-images-idx3-ubyte.gz").string());
  EXPECT_EQ(d.A.shape(), (Shape{10000, 784}));
  const Classes classes = classes_of(d.y);
  EXPECT_EQ(classes.values, (std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  std::vector<int> count(10);
  for (const double k : classes.index.values()) ++count[static_cast<std::size_t>(k)];
  EXPECT_EQ(count, std::vector<int>(10, 1000));
  EXPECT_EQ(largest_entry(d.A), 255.0);
}

}  // namespace
}  // namespace onestep::test
