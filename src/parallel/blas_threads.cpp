// The guard that keeps BLAS on one thread, and advice where BLAS does not know the CPU.
#include "parallel/blas_threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <string_view>

#if __has_include(<pthread.h>)
#include <pthread.h>
#endif

#include "hwy/targets.h"
#include "onestep/threads.h"
#include "parallel/blas_name.h"

// Whichever BLAS is linked has some of these; the others are null.
extern "C" {
[[gnu::weak]] void openblas_set_num_threads(int n) ONESTEP_BLAS_NAME(openblas_set_num_threads);
[[gnu::weak]] int openblas_get_num_threads() ONESTEP_BLAS_NAME(openblas_get_num_threads);
[[gnu::weak]] int openblas_get_parallel() ONESTEP_BLAS_NAME(openblas_get_parallel);
[[gnu::weak]] const char* openblas_get_corename() ONESTEP_BLAS_NAME(openblas_get_corename);
[[gnu::weak]] void omp_set_num_threads(int n);
[[gnu::weak]] int omp_get_max_threads();
[[gnu::weak]] int MKL_Set_Num_Threads_Local(int n);
[[gnu::weak]] void bli_thread_set_num_threads(long n);
[[gnu::weak]] long bli_thread_get_num_threads();
}

namespace onestep::parallel {
namespace {

// Thread counts that belong to the process: OpenBLAS on its own threads, BLIS.
struct ProcessThreads {
  int openblas = 1;
  long blis = 1;
};

// Both of these set what is wanted where it is not so, and return what they found.
ProcessThreads set_process(const ProcessThreads& wanted) {
  ProcessThreads found;
  if (openblas_get_num_threads != nullptr && openblas_set_num_threads != nullptr) {
    found.openblas = openblas_get_num_threads();
    if (found.openblas != wanted.openblas) openblas_set_num_threads(wanted.openblas);
  }
  if (bli_thread_get_num_threads != nullptr && bli_thread_set_num_threads != nullptr) {
    found.blis = bli_thread_get_num_threads();
    if (found.blis != wanted.blis) bli_thread_set_num_threads(wanted.blis);
  }
  return found;
}

// Thread counts that every thread has for itself: MKL's local one (0: none set), OpenMP's where OpenBLAS is built on it.
struct LocalThreads {
  int mkl = 1;
  int openmp = 1;
};

LocalThreads set_local(const LocalThreads& wanted) {
  LocalThreads found;
  if (MKL_Set_Num_Threads_Local != nullptr) found.mkl = MKL_Set_Num_Threads_Local(wanted.mkl);
  constexpr int on_openmp = 2;
  if (openblas_get_parallel != nullptr && openblas_get_parallel() == on_openmp && omp_set_num_threads != nullptr &&
      omp_get_max_threads != nullptr) {
    found.openmp = omp_get_max_threads();
    omp_set_num_threads(wanted.openmp);
  }
  return found;
}

std::mutex holders_mutex;
int holders = 0;
ProcessThreads process_found;

thread_local int local_holders = 0;
thread_local LocalThreads local_found;

#if __has_include(<pthread.h>)
// A child of fork() has this thread alone: another one that held the mutex, or a guard, is not there to let it go.
[[maybe_unused]] const int at_fork = pthread_atfork([] { holders_mutex.lock(); }, [] { holders_mutex.unlock(); },
                                                    [] {
                                                      holders = local_holders;
                                                      holders_mutex.unlock();
                                                    });
#endif

}  // namespace

BlasSerial::BlasSerial() noexcept {
  if (local_holders++ == 0) local_found = set_local({});
  const std::lock_guard lock(holders_mutex);
  if (holders++ == 0) process_found = set_process({});
}

BlasSerial::~BlasSerial() {
  {
    const std::lock_guard lock(holders_mutex);
    if (--holders == 0) set_process(process_found);
  }
  if (--local_holders == 0) set_local(local_found);
}

void keep_blas_serial_on_this_thread() noexcept { set_local({}); }

}  // namespace onestep::parallel

namespace onestep {

std::string better_blas_kernels() {
  constexpr std::array<std::string_view, 7> without_avx{"Prescott", "Core2", "Penryn", "Dunnington",
                                                        "Nehalem",  "Atom",  "Generic"};
  const bool avx512 = (hwy::SupportedTargets() & HWY_AVX3) != 0, avx2 = (hwy::SupportedTargets() & HWY_AVX2) != 0;
  if (openblas_get_corename == nullptr || !(avx512 || avx2) || std::ranges::count(without_avx, openblas_get_corename()) == 0)
    return "";
  return avx512 ? "SkylakeX" : "Haswell";
}

std::string blas_advice() {
  const std::string kernels = better_blas_kernels();
  if (kernels.empty()) return "";
  return fmt::format(
      "OpenBLAS does not know this CPU and uses its {} kernels; set OPENBLAS_CORETYPE={} before the program starts\n",
      openblas_get_corename(), kernels);
}

}  // namespace onestep
