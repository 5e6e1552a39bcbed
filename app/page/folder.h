// The folder of a page: figures are drawn into it once, as SVG and PNG.
#pragma once

#include <string>

#include "base/common.h"
#include "page/html.h"

namespace onestep::app::page {

class Folder {
 public:
  /// That of --out; without it nothing is drawn.
  explicit Folder(const CommonOptions& options) : options_(options) {}

  bool wanted() const { return !options_.out.empty(); }

  /// Draws it if it is new. Where that cannot be done the reason is kept; throws when a file cannot be written.
  void draw(const Figure& figure);
  const Pictures& pictures() const { return pictures_; }

  /// Where the page is, to be told.
  std::string path_of_page() const;

  /// Says on standard error what could not be drawn. Returns whether all was drawn that gnuplot could be asked for: that it
  /// is not installed is no failure.
  bool complain() const;

 private:
  const CommonOptions& options_;
  Pictures pictures_;
};

}  // namespace onestep::app::page
