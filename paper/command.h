// The verb `onestep paper`, for the command.
#pragma once

#include "base/command_line.h"

namespace onestep::app {

void add_paper(CommandLine& line);

}  // namespace onestep::app
