// The table of methods and colours.
#include "page/palette.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace onestep::app::page {

namespace {

constexpr std::array colours{
    Colour{"one_step", "#D55E00", "#BA5200", "#FF8A33"},    Colour{"implicit", "#0072B2", "#00639B", "#4DB2F0"},
    Colour{"unrolled", "#E69F00", "#9A6A00", "#F2B632"},    Colour{"k_step", "#CC79A7", "#A9497F", "#E59AC4"},
    Colour{"none", "#8A8A8A", "#5F5F5F", "#A9A9A9"},        Colour{"estimate", "#009E73", "#007A59", "#2CC79A"},
    Colour{"bound", "#56B4E9", "#1F7FB5", "#7CC7F2"},       Colour{"auto", "#882255", "#882255", "#D9679F"},
    Colour{"iterates", "#262626", "#262626", "#e8e8e8"},    Colour{"exact", "#262626", "#262626", "#e8e8e8"},
    Colour{"jax", "#332288", "#332288", "#9F8FF0"},         Colour{"jaxopt", "#117733", "#117733", "#43B068"},
    Colour{"optimistix", "#999933", "#70701F", "#C2C25A"},  Colour{"casadi", "#AA4499", "#AA4499", "#D377C4"},
    Colour{"piqp", "#44AA99", "#2C7A6D", "#5CC7B5"},        Colour{"proxqp", "#CC6677", "#B04357", "#E38795"},
    Colour{"cvxpylayers", "#6699CC", "#3F75AB", "#88B4E2"}, Colour{"qpth", "#AA7744", "#875A2D", "#CB9A66"},
};
constexpr std::size_t first_peer = 10;

}  // namespace

std::vector<const Colour*> all_colours() {
  std::vector<const Colour*> all{&ink, &soft, &grid};
  for (const Colour& c : colours) all.push_back(&c);
  return all;
}

bool is_peer(std::string_view method) {
  return std::none_of(colours.begin(), colours.begin() + first_peer, [&](const Colour& c) { return method == c.method; });
}

const Colour& colour_of(std::string_view method) {
  const auto* found = std::ranges::find_if(colours, [&](const Colour& c) { return method == c.method; });
  if (found != colours.end()) return *found;
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (const char c : method) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return colours[first_peer + hash % (colours.size() - first_peer)];
}

}  // namespace onestep::app::page
