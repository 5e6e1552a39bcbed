// The guard that keeps the BLAS below us on one thread: the threads are ours.
#pragma once

namespace onestep::parallel {

/// While any of these lives, BLAS runs on one thread; when the last one goes, its thread count is what the first one found.
/// To be destroyed on the thread that made it. Cheap when another one is alive: hold one around a whole solve.
class BlasSerial {
 public:
  BlasSerial() noexcept;
  ~BlasSerial();
  BlasSerial(const BlasSerial&) = delete;
  BlasSerial& operator=(const BlasSerial&) = delete;
};

/// For threads that only ever run pieces of ours: BLAS libraries that count threads per thread stay at one on this one.
void keep_blas_serial_on_this_thread() noexcept;

}  // namespace onestep::parallel
