// error: deleted
#include <onestep/onestep.h>

using namespace onestep;

// The entries would be gone with the array.
const double* entries(const Solution& s) { return s.x().data(); }
