// Draws figures into the folder and keeps account of those that failed.
#include "page/folder.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <utility>

namespace onestep::app::page {

void Folder::draw(const Figure& figure) {
  if (!pictures_.missing.empty() || pictures_.drawn.contains(figure.id) || pictures_.failed.contains(figure.id)) return;
  Drawn drawn;
  try {
    drawn = page::draw(figure);
  } catch (const NoGnuplot& missing) {
    pictures_.missing = missing.what();
    return;
  } catch (const std::exception& problem) {
    pictures_.failed[figure.id] = problem.what();
    return;
  }
  write_file(options_, figure.id + ".svg", drawn.svg);
  write_file(options_, figure.id + ".png", drawn.png);
  pictures_.drawn[figure.id] = std::move(drawn);
}

std::string Folder::path_of_page() const {
  return std::filesystem::absolute(std::filesystem::path(options_.out) / "index.html").lexically_normal().string();
}

bool Folder::complain() const {
  if (!pictures_.missing.empty()) fmt::print(stderr, "onestep: no figures: {}\n", pictures_.missing);
  for (const auto& [id, reason] : pictures_.failed) fmt::print(stderr, "onestep: {}\n", reason);
  return pictures_.failed.empty();
}

}  // namespace onestep::app::page
