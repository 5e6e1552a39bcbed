// The verbs of the command, a file each. Each adds itself to the command line with its options and its work.
#pragma once

#include "common.h"

namespace onestep::app {

void add_paper(Command& command);
void add_qp(Command& command);

}  // namespace onestep::app
