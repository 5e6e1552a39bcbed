// Where something was computed, for the foot of its page.
#pragma once

#include "page/figure.h"

namespace onestep::app::page {

/// The processor, its cores, the BLAS and the compiler.
Json machine();
/// In UTC, to the minute.
std::string date();

}  // namespace onestep::app::page
