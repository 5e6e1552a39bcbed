// How many threads the library may use. Results have the same bits for any number.
#pragma once

namespace onestep {

/// Lets every later computation use up to `n` threads, the calling one included; n = 1 means no other thread at all.
/// The default is ONESTEP_NUM_THREADS where that is set to a whole number of at least 1, otherwise the number of cores.
/// May be called from any thread at any time; a computation under way keeps the threads it has.
/// Throws std::invalid_argument unless 1 <= n <= 65535.
void set_threads(int n);

/// The number last set, or what the system could give of it.
int threads();

}  // namespace onestep
