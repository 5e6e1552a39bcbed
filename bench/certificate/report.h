// What the trials say, by class and in total: how many bounds are false and by how much, how tight they are, what they
// cost, and whether the bars hold.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "certificate/trial.h"
#include "harness.h"

namespace onestep::bench {

struct ClassTrials {
  std::string name;
  std::vector<Trial> trials;
};

// The table by class, the violations (the worst of each class first, with how to run it alone) and the reasons of refusals.
void print_table(const std::vector<ClassTrials>& classes, std::size_t examples);
// The bars, as rows of a suite; `whole`: of all classes, in the default number.
void add_bars(Suite& suite, const std::vector<ClassTrials>& classes, bool whole);
// The table by class, as rows of a suite.
void add_classes(Suite& suite, const std::vector<ClassTrials>& classes);

}  // namespace onestep::bench
