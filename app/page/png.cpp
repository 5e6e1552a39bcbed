// Square grey pictures of eight bits, compressed by zlib, and their base64.
#include "page/png.h"

#include <zlib.h>

#include <cmath>
#include <stdexcept>
#include <vector>

namespace onestep::app::page {

namespace {

std::string big_endian(std::size_t value) {
  std::string bytes;
  for (const unsigned shift : {24U, 16U, 8U, 0U}) bytes += static_cast<char>((value >> shift) & 0xFFU);
  return bytes;
}

// Length, type, data, and a checksum of the last two.
std::string chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  return big_endian(data.size()) + body + big_endian(crc32_z(0, reinterpret_cast<const Bytef*>(body.data()), body.size()));
}

}  // namespace

std::string png_of(std::span<const std::uint8_t> pixels) {
  const auto side = static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(pixels.size()))));
  if (side == 0 || side * side != pixels.size()) throw std::invalid_argument("a picture is not square");
  std::vector<Bytef> rows;
  for (std::size_t i = 0; i < side; ++i) {
    rows.push_back(0);  // the row is not filtered
    const auto row = pixels.subspan(i * side, side);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  uLongf length = compressBound(rows.size());
  std::string packed(length, '\0');
  if (compress2(reinterpret_cast<Bytef*>(packed.data()), &length, rows.data(), rows.size(), Z_BEST_COMPRESSION) != Z_OK)
    throw std::runtime_error("a picture cannot be compressed");
  packed.resize(length);
  const std::string grey_8_bit{8, 0, 0, 0, 0};
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", big_endian(side) + big_endian(side) + grey_8_bit) + chunk("IDAT", packed) +
         chunk("IEND", "");
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    unsigned bits = 0;
    for (std::size_t k = 0; k < 3; ++k)
      bits = bits << 8U | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (unsigned k = 0; k < 4; ++k) text += i + k <= bytes.size() ? letters[(bits >> (18U - 6U * k)) & 0x3FU] : '=';
  }
  return text;
}

}  // namespace onestep::app::page
