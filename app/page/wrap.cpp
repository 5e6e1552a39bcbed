// About how wide texts are, and the lines they are broken into.
#include <algorithm>

#include "page/layout.h"

namespace onestep::app::page {

double width_of(std::string_view text) {
  double width = 0;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0U) == 0x80) continue;  // a further byte of a letter in UTF-8
    const std::string_view narrow = "iljtfrI.,:;'|!()[] ", wide = "mwMW@%";
    width += narrow.find(c) != narrow.npos ? 0.36 : wide.find(c) != wide.npos ? 0.9 : c >= 'A' && c <= 'Z' ? 0.7 : 0.59;
  }
  return width;
}

std::vector<std::string> wrap(const std::string& text, double width) {
  std::vector<std::string> lines;
  std::string line;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!line.empty() && width_of(line) + width_of(" ") + width_of(word) > width) {
      lines.push_back(line);
      line = word;
    } else
      line += (line.empty() ? "" : " ") + word;
    at = end + 1;
  }
  if (!line.empty()) lines.push_back(line);
  return lines;
}

}  // namespace onestep::app::page
