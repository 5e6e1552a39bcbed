// error: assignment of read-only location|cannot assign to return value
#include <onestep/onestep.h>

using namespace onestep;

// Arrays share their entries with their copies.
void clear(const Array& a) { a.values()[0] = 0.0; }
