// One colour for each method, the same on every figure: those of Okabe and Ito, which the colour-blind tell apart, and of
// Tol for what they do not suffice for.
#pragma once

#include <string_view>
#include <vector>

namespace onestep::app::page {

struct Colour {
  const char* method;
  const char* line;  ///< on white, #rrggbb as all of these
  const char* text;  ///< darker, so that words in it can be read on white
  const char* dark;  ///< both, on a dark page
};

/// What is no curve: words, axes, leaders and grids.
inline constexpr Colour ink{"ink", "#262626", "#262626", "#e8e8e8"};
inline constexpr Colour soft{"soft", "#6a6a6a", "#6a6a6a", "#a8a8a8"};
inline constexpr Colour grid{"grid", "#e4e4e4", "#e4e4e4", "#3a3d42"};

/// Ink, soft, grid, and the colours of all methods.
std::vector<const Colour*> all_colours();

/// A method that is not in the palette, such as a peer, gets one of the colours kept for those, by its name.
const Colour& colour_of(std::string_view method);
/// Whether it is none of our own.
bool is_peer(std::string_view method);

}  // namespace onestep::app::page
