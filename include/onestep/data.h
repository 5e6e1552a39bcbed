// Samples and programs from files: what onestep::data, a library of its own, adds to onestep/onestep.h.
#pragma once

#include "onestep/dataset.h"  // samples: LIBSVM, CSV, IDX
#include "onestep/qps.h"      // quadratic programs: QPS
