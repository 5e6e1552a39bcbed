// The verbs of the command, a file each. Each adds itself to the command line with its options and its work.
#pragma once

#include "base/command_line.h"

namespace onestep::app {

void add_qp(CommandLine& line);
void add_fit(CommandLine& line);
void add_predict(CommandLine& line);
void add_influence(CommandLine& line);
void add_tune(CommandLine& line);
void add_clean(CommandLine& line);

}  // namespace onestep::app
