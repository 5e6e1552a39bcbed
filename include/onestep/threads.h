// How many threads the library may use, and whether the BLAS below it fits the machine.
#pragma once

#include <string>

#include "onestep/export.h"

ONESTEP_EXPORT_BEGIN
namespace onestep {

/// Lets every later computation use up to `n` threads, the calling one included; n = 1 means no other thread at all. Results
/// have the same bits for any number. The default is ONESTEP_NUM_THREADS where that is set to a whole number of at least 1,
/// otherwise the number of cores. May be called from any thread at any time; a computation under way keeps the threads it
/// has, and a workspace serves at most as many as there were when it was made. Throws MisuseError unless 1 <= n <= 65535.
/// While a computation runs, a BLAS with threads of its own is held at one thread for the whole process, and restored
/// afterwards.
///
///     set_threads(2);
void set_threads(int n);

/// The number last set, or what the system could give of it.
///
///     int n = threads();
int threads();

/// Which kernels OpenBLAS should be told to use, by the environment variable OPENBLAS_CORETYPE before the program starts;
/// empty when those in use suit this CPU.
///
///     const bool slow = !better_blas_kernels().empty();
std::string better_blas_kernels();

/// The same for people: empty when the BLAS suits this CPU. OpenBLAS does not know CPUs younger than itself and falls back
/// to kernels without AVX, which are several times slower; the advice then says which environment variable to set before the
/// program starts.
///
///     std::cerr << blas_advice();
std::string blas_advice();

}  // namespace onestep
ONESTEP_EXPORT_END
