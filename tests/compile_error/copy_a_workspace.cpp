// error: deleted
#include <onestep/onestep.h>

using namespace onestep;

// A thread that runs a plan needs memory of its own, not a copy of another's.
Workspace copy(const Workspace& workspace) { return workspace; }
