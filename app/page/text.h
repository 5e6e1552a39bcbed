// Tables for the terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "page/figure.h"

namespace onestep::app::page {

/// How many columns of a terminal a text takes: as many as it has letters, of which some are several bytes in UTF-8 and
/// some, such as the bar of x̄, stand on the letter before.
std::size_t columns_of(std::string_view text);

/// Of so many letters at most: cut in the middle, as names that begin alike often differ at their ends.
std::string shortened(std::string_view text, std::size_t most);

/// With spaces up to this width, at its end or at its front.
std::string padded(const std::string& text, std::size_t width, bool to_the_right = false);

/// Title and rows; columns of numbers are set to the right, as on the page.
std::string text_of(const Table& table);

}  // namespace onestep::app::page
