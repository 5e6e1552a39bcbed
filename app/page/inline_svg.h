// gnuplot's SVG as a part of a page.
#pragma once

#include <string>
#include <string_view>

namespace onestep::app::page {

/// Its ids get a prefix, since all of gnuplot's pictures use the same ones, its colours become those of the page's scheme,
/// and what is for a file of its own is cut off. `name` is for readers who do not see it.
std::string inlined(std::string_view svg, const std::string& prefix, const std::string& name);

}  // namespace onestep::app::page
