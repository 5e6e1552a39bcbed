// Takes gnuplot's SVG apart, so that its colours follow the scheme of the page and its names do not collide.
#include "page/inline_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "page/html.h"
#include "page/palette.h"

namespace onestep::app::page {

namespace {

// The colour "rgb( 51,  51,  51)" as #333333; empty when the text does not begin with one.
std::string colour_at(std::string_view text, std::size_t& length) {
  if (!text.starts_with("rgb(")) return "";
  std::string hex = "#";
  std::size_t at = 4;
  for (int i = 0; i < 3; ++i) {
    at = std::min(text.find_first_not_of(" ,", at), text.size());
    unsigned value = 0;
    const auto [end, problem] = std::from_chars(text.data() + at, text.data() + text.size(), value);
    if (problem != std::errc() || value > 255) return "";
    at = static_cast<std::size_t>(end - text.data());
    hex += fmt::format("{:02x}", value);
  }
  length = at + 1;
  return hex;
}

// The name that a colour of gnuplot's has on the page, where it follows the light or dark scheme.
std::string scheme_colour(const std::string& hex, bool text) {
  const auto same = [&](std::string_view other) {
    return std::ranges::equal(hex, other, [](char a, char b) { return a == (b >= 'A' && b <= 'F' ? b - 'A' + 'a' : b); });
  };
  for (const Colour* c : all_colours())
    if (same(text ? c->text : c->line)) return fmt::format("var(--{}{})", c->method, text ? "-text" : "");
  return hex;
}

}  // namespace

std::string inlined(std::string_view svg, const std::string& prefix, const std::string& name) {
  const std::size_t opening = svg.find("<svg"), body = svg.find('>', opening), box = svg.find("viewBox=\"", opening);
  std::string result;
  if (opening == svg.npos || body == svg.npos || box == svg.npos) return result;
  result =
      fmt::format("<svg xmlns:xlink=\"http://www.w3.org/1999/xlink\" role=\"img\" aria-label=\"{}\" width=\"100%\" {}\">",
                  escaped(name), svg.substr(box, svg.find('"', box + 9) - box));
  svg.remove_prefix(body + 1);
  bool in_tag = false;
  for (std::size_t at = 0; at < svg.size();) {
    const std::string_view rest = svg.substr(at);
    if (rest.front() == '<') in_tag = true;
    if (rest.front() == '>') in_tag = false;
    std::size_t length = 0;
    if (in_tag && (rest.starts_with(" id='") || rest.starts_with(" id=\""))) {
      result += rest.substr(0, 5);
      result += prefix;
      at += 5;
    } else if (in_tag && (rest.starts_with("href='#") || rest.starts_with("url(#"))) {
      const std::size_t hash = rest.find('#') + 1;
      result += rest.substr(0, hash);
      result += prefix;
      at += hash;
    } else if (const std::string hex = in_tag ? colour_at(rest, length) : ""; !hex.empty()) {
      const bool text = result.ends_with("fill=\"");
      result += scheme_colour(hex, text);
      at += length;
    } else {
      result += rest.front();
      ++at;
    }
  }
  return result;
}

}  // namespace onestep::app::page
