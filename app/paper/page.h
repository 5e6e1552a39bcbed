// The page of `onestep paper`: one HTML file that needs nothing beside it.
#pragma once

#include <map>
#include <string>

#include "paper/draw.h"
#include "paper/result.h"

namespace onestep::app::paper {

/// What came of drawing: pictures by the figure's id, and for those that could not be drawn the reason.
struct Pictures {
  std::map<std::string, Drawn> drawn;
  std::map<std::string, std::string> failed;
  std::string missing;  ///< why nothing at all could be drawn; empty when it could
};

std::string page_of(const Results& results, const Pictures& pictures);

}  // namespace onestep::app::paper
