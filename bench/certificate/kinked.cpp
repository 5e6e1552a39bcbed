#include "certificate/problem.h"
namespace onestep::bench {
std::vector<ProblemClass> kinked_classes() { return {}; }
std::vector<ProblemClass> program_classes() { return {}; }
}
