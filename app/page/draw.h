// Figures as pictures, through gnuplot.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "page/figure.h"

namespace onestep::app::page {

/// The message says what is missing and how to get it.
class NoGnuplot : public std::runtime_error {
 public:
  NoGnuplot();
};

struct Drawn {
  std::string svg, png;             ///< all panels with the figure's title, to stand alone
  std::vector<std::string> panels;  ///< an SVG each without the notes, for a page that says those itself
};

/// Throws NoGnuplot where there is none, std::runtime_error when a picture could not be made.
Drawn draw(const Figure& figure);

}  // namespace onestep::app::page
