// Small pictures as PNG files, to be put into a page.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace onestep::app::page {

/// A square picture in shades of grey, 8 bits each, given row by row.
std::string png_of(std::span<const std::uint8_t> pixels);

std::string base64(std::string_view bytes);

}  // namespace onestep::app::page
