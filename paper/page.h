// The page of `onestep paper`.
#pragma once

#include <string>

#include "page/html.h"
#include "paper/result.h"

namespace onestep::app::paper {

std::string page_of(const Results& results, const page::Pictures& pictures);

}  // namespace onestep::app::paper
