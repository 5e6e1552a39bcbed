// Newton's method, products and factorisations by hand on BLAS and LAPACK, with threads of their own.
#include "floors.h"

#include <hwy/aligned_allocator.h>
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <thread>

#include "floor_kernels.h"

extern "C" {
void dgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k, const double* alpha,
            const double* a, const int* lda, const double* b, const int* ldb, const double* beta, double* c, const int* ldc);
void dgemv_(const char* trans, const int* m, const int* n, const double* alpha, const double* a, const int* lda,
            const double* x, const int* incx, const double* beta, double* y, const int* incy);
void dsyrk_(const char* uplo, const char* trans, const int* n, const int* k, const double* alpha, const double* a,
            const int* lda, const double* beta, double* c, const int* ldc);
void dtrsm_(const char* side, const char* uplo, const char* transa, const char* diag, const int* m, const int* n,
            const double* alpha, const double* a, const int* lda, double* b, const int* ldb);
void dpotrf_(const char* uplo, const int* n, double* a, const int* lda, int* info);
void dpotrs_(const char* uplo, const int* n, const int* nrhs, const double* a, const int* lda, double* b, const int* ldb,
             int* info);

// OpenBLAS's own; null when another BLAS is linked.
[[gnu::weak]] void openblas_set_num_threads(int n);
[[gnu::weak]] char* openblas_get_corename();
[[gnu::weak]] void gotoblas_dynamic_init();
[[gnu::weak]] void gotoblas_dynamic_quit();
}

namespace onestep::bench {
namespace {

// Threads that wait for work: spinning for some microseconds, then asleep, so that they do not disturb the other contender.
// The pieces of a job go to whoever is free, and the job is done when its pieces are: a thread that the system does not run
// just then is not waited for.
class Team {
 public:
  Team() {
    const unsigned size = std::max(1U, std::thread::hardware_concurrency());
    for (unsigned worker = 1; worker < size; ++worker) threads_.emplace_back([this, worker] { serve(worker); });
  }
  ~Team() {
    stop_ = true;
    wake();
    for (std::thread& thread : threads_) thread.join();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  std::size_t size() const { return threads_.size() + 1; }

  // job(piece, worker) for each piece, of which there are fewer than 2^16.
  void run(std::size_t pieces, const std::function<void(std::size_t, std::size_t)>& job) {
    job_ = &job;
    done_ = 0;
    const std::uint64_t number = ticket_ >> 32;
    ticket_ = (number + 1) << 32 | pieces << 16;
    wake();
    work(0);
    while (done_ != pieces) hwy::Pause();
  }

 private:
  void wake() {
    ++calls_;
    calls_.notify_all();
  }
  void serve(std::size_t worker) {
    while (!stop_) {
      const std::uint32_t seen = calls_;
      work(worker);
      for (int spin = 0; calls_ == seen && spin < 2000; ++spin) hwy::Pause();
      calls_.wait(seen);
    }
  }
  // A ticket is the number of the job, how many pieces it has and which comes next: whoever moves it on has a piece of the
  // job that is on, which cannot end before that piece.
  void work(std::size_t worker) {
    std::uint64_t ticket = ticket_;
    while ((ticket & 0xFFFF) < (ticket >> 16 & 0xFFFF)) {
      if (!ticket_.compare_exchange_weak(ticket, ticket + 1)) continue;
      (*job_)(ticket & 0xFFFF, worker);
      ++done_;
      ticket = ticket_;
    }
  }

  std::vector<std::thread> threads_;
  const std::function<void(std::size_t, std::size_t)>* job_ = nullptr;
  std::atomic<std::uint64_t> ticket_{0};
  std::atomic<std::size_t> done_{0};
  std::atomic<std::uint32_t> calls_{0};
  std::atomic<bool> stop_{false};
};

Team& team() {
  static Team instance;
  return instance;
}

// Column-major upper triangle, that is the lower one of a row-major matrix. Large matrices in two by two blocks, the two in
// the middle on all threads.
void cholesky(int n, double* H) {
  int info = 0;
  if (n < 500) {
    dpotrf_("U", &n, H, &n, &info);
    return;
  }
  const double one = 1, minus = -1;
  const int half = n / 2, rest = n - half;
  const auto at = [&](int row, int column) { return H + row + static_cast<std::ptrdiff_t>(column) * n; };
  dpotrf_("U", &half, H, &n, &info);
  const int pieces = 4, width = (rest + pieces - 1) / pieces;
  const auto columns = [&](std::size_t piece) { return half + static_cast<int>(piece) * width; };
  team().run(pieces, [&](std::size_t piece, std::size_t) {
    const int begin = columns(piece), count = std::min(width, n - begin);
    dtrsm_("L", "U", "T", "N", &half, &count, &one, H, &n, at(0, begin), &n);
  });
  team().run(pieces, [&](std::size_t piece, std::size_t) {
    const int begin = columns(pieces - 1 - piece), count = std::min(width, n - begin), above = begin - half;
    if (above > 0)
      dgemm_("T", "N", &above, &count, &half, &minus, at(0, half), &n, at(0, begin), &n, &one, at(half, begin), &n);
    dsyrk_("U", "T", &count, &half, &minus, at(0, begin), &n, &one, at(begin, begin), &n);
  });
  dpotrf_("U", &rest, at(half, half), &n, &info);
}

// Each thread takes blocks of rows and keeps sums of its own, which are added at the end.
//
// Tried with OpenBLAS 0.3.21 (SkylakeX kernels) on two AVX-512 cores that others were using too; the best CPU time of some
// tries, milliseconds of both cores together, at N=10000 n=100, N=10000 n=300 and N=20000 n=1000: SYRK blocks of 192
// rows 3.9, 18.9, 422; 384 rows 3.8, 20.1, 492; 768 rows 3.8, 22.7, 446. The lower triangle instead of the upper one is 8 %
// slower at n = 100 and 300. For n = 1000, 256 rows with everything but SYRK on 64 of them at a time take 422, all at once
// 452. SYRK alone on OpenBLAS's own two threads, wall time doubled: 5.6, 22, 352, so that they lose at n = 100 and 300 and
// come out even above.
class LargeFloor final : public NewtonFloor {
 public:
  explicit LargeFloor(const Logistic& data)
      : NewtonFloor(data),
        n_(static_cast<int>(data.n)),
        block_rows_(data.n < 500 ? 192 : 256),
        piece_rows_(data.n < 500 ? 192 : 64),
        shares_(team().size()) {
    for (Share& share : shares_) {
      share.H.resize(data.n * data.n);
      share.g.resize(data.n);
      share.t.resize(piece_rows_);
      share.r.resize(piece_rows_);
      share.q.resize(piece_rows_);
      share.scaled.resize(block_rows_ * data.n);
    }
  }

  void step() override {
    for (Share& share : shares_) share.used = false;
    const std::size_t N = data_.N, blocks = (N + block_rows_ - 1) / block_rows_;
    team().run(blocks, [&](std::size_t block, std::size_t worker) {
      const std::size_t begin = block * block_rows_;
      add_rows(begin, std::min(block_rows_, N - begin), shares_[worker]);
    });
    Share& sum = add_up();
    const double* const x = data_.x.data();
    value_ = sum.value;
    for (std::size_t j = 0; j < data_.n; ++j) {
      const double l2 = data_.penalty(j);
      sum.H[j * data_.n + j] += l2;
      sum.g[j] += l2 * x[j];
      value_ += 0.5 * l2 * x[j] * x[j];
    }
    cholesky(n_, sum.H.data());
    const int one = 1;
    int info = 0;
    dpotrs_("U", &n_, &one, sum.H.data(), &n_, sum.g.data(), &n_, &info);
    for (std::size_t j = 0; j < data_.n; ++j) x_next_[j] = x[j] - sum.g[j];
  }

 private:
  struct alignas(128) Share {
    std::vector<double> H, g, t, r, q, scaled;
    double value = 0;
    bool used = false;
  };

  void add_rows(std::size_t begin, std::size_t rows, Share& share) {
    const double one = 1, zero = 0, H_before = share.used ? 1 : 0;
    const int stride = 1, count = static_cast<int>(rows);
    if (!share.used) share.value = 0;
    for (std::size_t offset = 0; offset < rows; offset += piece_rows_) {
      const std::size_t i = begin + offset, piece = std::min(piece_rows_, rows - offset);
      const int piece_count = static_cast<int>(piece);
      const double* const A = data_.A.data() + i * data_.n;
      const double g_before = share.used ? 1 : 0;
      dgemv_("T", &n_, &piece_count, &one, A, &n_, data_.x.data(), &stride, &zero, share.t.data(), &stride);
      share.value +=
          logistic_terms(piece, share.t.data(), data_.y.data() + i, data_.w.data() + i, share.r.data(), share.q.data());
      dgemv_("N", &n_, &piece_count, &one, A, &n_, share.r.data(), &stride, &g_before, share.g.data(), &stride);
      scale_rows(piece, data_.n, A, share.q.data(), share.scaled.data() + offset * data_.n);
      share.used = true;
    }
    dsyrk_("U", "N", &n_, &count, &one, share.scaled.data(), &n_, &H_before, share.H.data(), &n_);
  }

  Share& add_up() {
    const auto first = std::find_if(shares_.begin(), shares_.end(), [](const Share& share) { return share.used; });
    for (auto other = first + 1; other != shares_.end(); ++other) {
      if (!other->used) continue;
      const auto add_columns = [&](std::size_t begin, std::size_t end) {
        for (std::size_t j = begin; j < end; ++j)
          add_to(j + 1, other->H.data() + j * data_.n, first->H.data() + j * data_.n);
      };
      if (data_.n < 200) {
        add_columns(0, data_.n);
      } else {
        constexpr std::size_t pieces = 8;
        team().run(pieces, [&](std::size_t piece, std::size_t) {
          add_columns(data_.n * piece / pieces, data_.n * (piece + 1) / pieces);
        });
      }
      add_to(data_.n, other->g.data(), first->g.data());
      first->value += other->value;
    }
    return *first;
  }

  int n_;
  std::size_t block_rows_;  // of a SYRK
  std::size_t piece_rows_;  // of everything else: they stay in the cache from one use to the next
  std::vector<Share> shares_;
};

// The data is rearranged once, as anybody would who has a loop to run on it.
class SmallFloor final : public NewtonFloor {
 public:
  explicit SmallFloor(const Logistic& data)
      : NewtonFloor(data),
        stride_((data.N + 7) / 8 * 8),
        columns_(hwy::AllocateAligned<double>(stride_ * data.n)),
        labels_(hwy::AllocateAligned<double>(stride_)) {
    std::fill_n(columns_.get(), stride_ * data.n, 0.0);
    std::fill_n(labels_.get(), stride_, 0.0);
    for (std::size_t i = 0; i < data.N; ++i) {
      labels_[i] = data.y[i];
      for (std::size_t j = 0; j < data.n; ++j) columns_[j * stride_ + i] = data.A[i * data.n + j];
    }
  }

  void step() override {
    value_ = small_newton_step(data_.N, data_.n, columns_.get(), stride_, labels_.get(), data_.w.data(),
                               data_.first_penalised, data_.x.data(), x_next_.data());
  }

 private:
  std::size_t stride_;
  hwy::AlignedFreeUniquePtr<double[]> columns_, labels_;
};

}  // namespace

// OpenBLAS up to 0.3.21 does not know CPUs younger than itself and falls back to SSE3 kernels ("Prescott"), a quarter of the
// speed. Having it choose again with the instruction set named is what OPENBLAS_CORETYPE does when set before the start.
void prepare_blas() {
  if (openblas_set_num_threads != nullptr) openblas_set_num_threads(1);
  if (openblas_get_corename == nullptr || gotoblas_dynamic_init == nullptr || gotoblas_dynamic_quit == nullptr) return;
  if (std::string_view(openblas_get_corename()) != "Prescott") return;
  const auto targets = hwy::SupportedTargets();
  const char* const core = (targets & HWY_AVX3) != 0 ? "SkylakeX" : (targets & HWY_AVX2) != 0 ? "Haswell" : nullptr;
  if (core == nullptr) return;
  setenv("OPENBLAS_CORETYPE", core, 1);
  gotoblas_dynamic_quit();
  gotoblas_dynamic_init();
}

std::unique_ptr<NewtonFloor> newton_floor(const Logistic& data) {
  if ((data.n == 5 || data.n == 10) && data.l2.empty()) return std::make_unique<SmallFloor>(data);
  return std::make_unique<LargeFloor>(data);
}

void FloorNewton::run() {
  data_.x = start_;
  for (int i = 0; i < iterations_; ++i) {
    if (i > 0) data_.x = floor_->x_next();
    floor_->step();
  }
}

RidgeFloor::RidgeFloor(const Logistic& data, double lambda, double alpha)
    : alpha_(alpha), H_(data.n * data.n), b_(data.n), x_(data.x), x_next_(data.n) {
  const int n = static_cast<int>(data.n), N = static_cast<int>(data.N), stride = 1;
  const double one = 1, zero = 0;
  dgemm_("N", "T", &n, &n, &N, &one, data.A.data(), &n, data.A.data(), &n, &zero, H_.data(), &n);
  dgemv_("N", &n, &N, &one, data.A.data(), &n, data.y.data(), &stride, &zero, b_.data(), &stride);
  for (std::size_t j = 0; j < data.n; ++j) H_[j * data.n + j] += lambda;
}

void RidgeFloor::step() { ridge_step(H_.data(), b_.data(), alpha_, x_.data(), x_next_.data()); }

NarrowProductsFloor::NarrowProductsFloor(const std::vector<double>& A, std::size_t N, std::size_t n, std::size_t k)
    : A_(A), N_(N), n_(n), k_(k) {
  sums_.resize(team().size(), std::vector<double>(n * k));
  products_.resize(team().size());
}

void NarrowProductsFloor::run(const std::vector<double>& v) {
  constexpr std::size_t block_rows = 64;
  const int n = static_cast<int>(n_), k = static_cast<int>(k_);
  const double one = 1, zero = 0;
  for (std::vector<double>& sum : sums_) std::ranges::fill(sum, 0.0);
  team().run((N_ + block_rows - 1) / block_rows, [&](std::size_t block, std::size_t worker) {
    const std::size_t begin = block * block_rows;
    const int rows = static_cast<int>(std::min(block_rows, N_ - begin));
    const double* const A = A_.data() + begin * n_;
    std::vector<double>& product = products_[worker];
    product.resize(block_rows * k_);
    dgemm_("N", "N", &k, &rows, &n, &one, v.data(), &k, A, &n, &zero, product.data(), &k);
    dgemm_("N", "T", &k, &n, &rows, &one, product.data(), &k, A, &n, &one, sums_[worker].data(), &k);
  });
  for (std::size_t worker = 1; worker < sums_.size(); ++worker) add_to(n_ * k_, sums_[worker].data(), sums_.front().data());
}

ChainFloor::ChainFloor(double a, double b, const std::vector<double>& x) : a_(a), b_(b), x_(x), result_(x.size()) {}

// Pieces of 8192 entries to whoever is free.
void ChainFloor::run() {
  constexpr std::size_t piece_size = 8192;
  team().run((x_.size() + piece_size - 1) / piece_size, [&](std::size_t piece, std::size_t) {
    const std::size_t begin = piece * piece_size;
    chain(std::min(piece_size, x_.size() - begin), a_, b_, x_.data() + begin, result_.data() + begin);
  });
}

}  // namespace onestep::bench
