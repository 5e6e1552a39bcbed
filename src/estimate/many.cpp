// Many problems of one shape: a Solution for each, solved and differentiated by whichever thread is free.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include "estimate/spares.h"
#include "estimate/state.h"
#include "graph/access.h"
#include "onestep/solve_many.h"
#include "parallel/blas_threads.h"
#include "parallel/cut.h"
#include "parallel/pool.h"
#include "solve/monitor.h"

namespace onestep {

using detail::state_of;

namespace {

// Calls f(i) for all problems, each on one thread of the context.
template <class F> void for_each_problem(const Context& context, std::size_t count, const F& f) {
  const parallel::UsePool use(detail::pool_of(context));
  const parallel::BlasSerial serial;
  parallel::parallel_for_throwing(count, f);
}

}  // namespace

struct ManySolutions::State {
  detail::Settled settled;
  std::vector<Solution> problems;
  std::vector<bool> shared;  // of the parameters
  std::shared_ptr<detail::Spares> spares = std::make_shared<detail::Spares>();

  State(const detail::Settled& made, std::size_t count, std::vector<bool> shares)
      : settled(made), problems(count, detail::SolutionAccess::make(nullptr)), shared(std::move(shares)) {
    for_each_problem(settled.context, count, [&](std::size_t i) { problems[i] = settled.make(); });
  }
};

namespace {

std::string at_problem(std::size_t i, const Error& error) { return fmt::format("problem {}: {}", i, error.what()); }

// The same exception with the number of the problem in front of its message.
template <class F> void naming_problem(std::size_t i, const F& f) {
  try {
    f();
  } catch (const NotConvergedError& e) {
    throw NotConvergedError(at_problem(i, e), e.status, e.iterations);
  } catch (const NoDerivativeError& e) {
    throw NoDerivativeError(at_problem(i, e), e.reason, e.status, e.residual);
  } catch (const MisuseError& e) { throw MisuseError(at_problem(i, e)); }
}

// How many problems there are: as many as there are arrays of whatever is not shared.
std::size_t count_of(const std::vector<Many>* x0, const std::vector<Many>& theta) {
  std::optional<std::size_t> count;
  const auto look = [&](const char* what, const std::vector<Many>& all) {
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (all[k].is_shared()) continue;
      if (count && *count != all[k].count())
        throw MisuseError(
            fmt::format("[solve_many] {} {} has {} arrays, others have {}: one for each problem, or one array "
                        "that all share",
                        what, k, all[k].count(), *count));
      count = all[k].count();
    }
  };
  if (x0 != nullptr) look("part", *x0);
  look("parameter", theta);
  return count.value_or(1);
}

Parts of_problem(const std::vector<Many>& all, std::size_t i) {
  std::vector<Array> parts;
  parts.reserve(all.size());
  for (const Many& one : all) parts.push_back(one[i]);
  return parts;
}

std::vector<bool> shares(const std::vector<Many>& theta) {
  std::vector<bool> shared;
  for (const Many& t : theta) shared.push_back(t.is_shared());
  return shared;
}

}  // namespace

Many Many::rows(const Array& matrix) {
  if (matrix.shape().rank() != 2)
    throw MisuseError(fmt::format("[Many] rows of a matrix are wanted, this has shape {}", to_string(matrix.shape())));
  const Array dense = matrix.contiguous();
  const auto columns = static_cast<std::size_t>(dense.shape()[1]);
  std::vector<Array> each;
  for (std::int64_t i = 0; i < dense.shape()[0]; ++i) {
    const std::span<const double> row = dense.values().subspan(static_cast<std::size_t>(i) * columns, columns);
    each.emplace_back(Shape{dense.shape()[1]}, std::vector<double>(row.begin(), row.end()));
  }
  return each;
}

const Array& Many::operator[](std::size_t problem) const& {
  if (is_shared_) return arrays_.front();
  if (problem < arrays_.size()) return arrays_[problem];
  throw MisuseError(fmt::format("[Many] problem {} of {}; they are counted from 0", problem, arrays_.size()));
}
Array Many::operator[](std::size_t problem) const&& { return static_cast<const Many&>(*this)[problem]; }

Array Many::matrix() const {
  if (is_shared_) throw MisuseError("[Many] one array is shared by all problems: there are no rows");
  std::vector<double> entries;
  for (const Array& a : arrays_) {
    if (a.shape().rank() > 1 || a.size() != arrays_.front().size())
      throw MisuseError(
          fmt::format("[Many] a matrix has vectors as its rows, this array has shape {}", to_string(a.shape())));
    const Array dense = a.contiguous();
    entries.insert(entries.end(), dense.values().begin(), dense.values().end());
  }
  const std::int64_t columns = arrays_.empty() ? 0 : arrays_.front().size();
  return {Shape{static_cast<std::int64_t>(arrays_.size()), columns}, std::move(entries)};
}

ManySolutions::State& ManySolutions::state() const {
  if (!state_) detail::fail_moved_from("ManySolutions");
  return *state_;
}

std::size_t ManySolutions::size() const { return state().problems.size(); }

Solution ManySolutions::operator[](std::size_t i) const {
  if (i >= size()) throw MisuseError(fmt::format("[ManySolutions] problem {} of {}; they are counted from 0", i, size()));
  const Solution& s = state().problems[i];
  return even_if_unconverged_ ? s.even_if_unconverged() : s;
}

Many ManySolutions::x(std::size_t part) const {
  std::vector<Array> each;
  for (const Solution& s : state().problems) each.push_back(s.x(part));
  return each;
}

std::vector<Status> ManySolutions::statuses() const {
  std::vector<Status> all;
  for (const Solution& s : state().problems) all.push_back(s.status());
  return all;
}

std::vector<std::size_t> ManySolutions::failed() const {
  std::vector<std::size_t> which;
  for (std::size_t i = 0; i < size(); ++i)
    if (!is_solution(state().problems[i].status())) which.push_back(i);
  return which;
}

ManySolutions ManySolutions::even_if_unconverged() const {
  ManySolutions copy = *this;
  copy.even_if_unconverged_ = true;
  return copy;
}

namespace {

void check_count(const char* who, const std::vector<Many>& all, std::size_t count) {
  for (std::size_t k = 0; k < all.size(); ++k)
    if (!all[k].is_shared() && all[k].count() != count)
      throw MisuseError(fmt::format("[{}] number {} has {} arrays for {} problems", who, k, all[k].count(), count));
}

void pull_back(const Solution& s, const Parts& c, std::span<const std::span<double>> out) {
  std::vector<Array> dense;
  std::vector<std::span<const double>> cotangents;
  for (const Array& a : c) dense.push_back(a.contiguous());
  for (const Array& a : dense) cotangents.push_back(a.values());
  s.vjp_into(cotangents, out);
}

// Calls `derive`, naming the problem; where one that has no point to differentiate at is to be passed over, `otherwise`.
template <class Derive, class Otherwise>
void derive_problem(std::size_t i, bool passes_over, const Derive& derive, const Otherwise& otherwise) {
  try {
    naming_problem(i, derive);
  } catch (const NotConvergedError&) {
    if (!passes_over) throw;
    otherwise();
  }
}
constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

// Of a shared parameter, gradients are added up over chunks of problems and then over the chunks: the order depends on the
// number of problems alone.
constexpr std::size_t most_chunks = 64;

// The gradients of all problems with respect to one parameter, in one piece of memory: an array for each would cost more
// than its entries. Of a shared parameter, a sum for each chunk and the gradient that is added next.
class Gradients {
 public:
  Gradients(const Shape& shape, bool is_shared, std::size_t problems, std::size_t chunks, detail::Spares& spares)
      : shape_(shape),
        size_(static_cast<std::size_t>(shape.size())),
        is_shared_(is_shared),
        problems_(problems),
        chunks_(chunks),
        memory_(spares.take(size_ * (is_shared ? 2 * chunks : problems))) {
    if (is_shared) std::fill_n(memory_.get(), size_ * chunks, 0.0);
  }

  // Where the gradient of a problem is to be written, and what follows that.
  std::span<double> of(std::size_t problem, std::size_t chunk) { return part(is_shared_ ? chunks_ + chunk : problem); }
  void add(std::size_t chunk) {
    if (is_shared_) detail::add(part(chunk), part(chunks_ + chunk));
  }

  Many result() {
    if (is_shared_) {
      for (std::size_t chunk = 1; chunk < chunks_; ++chunk) detail::add(part(0), part(chunk));
      return Array(shape_, {part(0).begin(), part(0).end()});
    }
    std::vector<Array> each;
    each.reserve(problems_);
    for (std::size_t i = 0; i < problems_; ++i) each.push_back(array_of(shape_, {memory_, part(i).data()}));
    return each;
  }

 private:
  std::span<double> part(std::size_t i) { return {memory_.get() + i * size_, size_}; }

  Shape shape_;
  std::size_t size_;
  bool is_shared_;
  std::size_t problems_, chunks_;
  std::shared_ptr<double[]> memory_;
};

}  // namespace

std::vector<Many> ManySolutions::vjp(const std::vector<Many>& c) const {
  const State& s = state();
  const std::size_t count = s.problems.size();
  check_count("vjp", c, count);
  const std::vector<Input>& parameters = s.settled.method->step->parameters;
  const parallel::Cut chunks = parallel::cut_into(count, most_chunks, 1);
  std::vector<Gradients> gradients;
  for (std::size_t k = 0; k < parameters.size(); ++k)
    gradients.emplace_back(parameters[k].shape, s.shared[k], count, chunks.count, *s.spares);
  for_each_problem(s.settled.context, chunks.count, [&](std::size_t chunk) {
    std::vector<std::span<double>> out(parameters.size());
    for (std::size_t i = chunks.begin(chunk); i < chunks.end(chunk); ++i) {
      for (std::size_t k = 0; k < parameters.size(); ++k) out[k] = gradients[k].of(i, chunk);
      derive_problem(
          i, even_if_unconverged_, [&] { pull_back((*this)[i], of_problem(c, i), out); },
          [&] {
            for (const std::span<double> o : out) std::ranges::fill(o, nothing);
          });
      for (Gradients& g : gradients) g.add(chunk);
    }
  });
  std::vector<Many> result;
  for (Gradients& g : gradients) result.push_back(g.result());
  return result;
}

std::vector<Many> ManySolutions::jvp(const std::vector<Many>& v) const {
  State& s = state();
  const std::size_t count = s.problems.size();
  check_count("jvp", v, count);
  std::vector<Parts> all(count);
  for_each_problem(s.settled.context, count, [&](std::size_t i) {
    derive_problem(
        i, even_if_unconverged_, [&] { all[i] = (*this)[i].jvp(of_problem(v, i)); },
        [&] {
          std::vector<Array> none;
          for (const Shape& part : state_of(s.problems[i]).parts()) none.push_back(full(part, nothing));
          all[i] = std::move(none);
        });
  });
  const std::size_t parts = count == 0 ? 0 : all.front().size();
  std::vector<Many> result;
  for (std::size_t k = 0; k < parts; ++k) {
    std::vector<Array> each;
    for (const Parts& p : all) each.push_back(p[k]);
    result.emplace_back(std::move(each));
  }
  return result;
}

PreparedMany::PreparedMany(const Solver& solver, const std::vector<Many>* x0, const std::vector<Many>& theta,
                           const Estimator& estimator) {
  const std::size_t count = count_of(x0, theta);
  if (count == 0) throw MisuseError("[solve_many] there is no problem: a parameter has no array at all");
  const Parts start = x0 != nullptr ? of_problem(*x0, 0) : Parts();
  const detail::Settled settled = detail::settle(solver, x0 != nullptr ? &start : nullptr, of_problem(theta, 0), estimator);
  if (x0 != nullptr)
    x0_ = *x0;
  else
    for (const Array& part : settled.start) x0_.emplace_back(part);
  state_ = std::make_shared<ManySolutions::State>(settled, count, shares(theta));
}
PreparedMany::PreparedMany(const Solver& solver, const std::vector<Many>& x0, const std::vector<Many>& theta,
                           const Estimator& estimator)
    : PreparedMany(solver, &x0, theta, estimator) {}
PreparedMany::PreparedMany(const Solver& solver, const std::vector<Many>& theta, const Estimator& estimator)
    : PreparedMany(solver, nullptr, theta, estimator) {}

ManySolutions PreparedMany::solve(const std::vector<Many>& theta) { return solve(x0_, theta); }

ManySolutions PreparedMany::solve(const std::vector<Many>& x0, const std::vector<Many>& theta) {
  if (!state_) detail::fail_moved_from("PreparedMany");
  const std::size_t count = state_->problems.size();
  check_count("solve_many", x0, count);
  check_count("solve_many", theta, count);
  if (shares(theta) != state_->shared)
    throw MisuseError("[solve_many] what is shared differs from what this was prepared for");
  detail::check(state_->settled.options);
  // The caller kept the last solutions, which must not change; or one of them.
  if (state_.use_count() > 1) state_ = std::make_shared<ManySolutions::State>(state_->settled, count, state_->shared);
  for_each_problem(state_->settled.context, count, [&](std::size_t i) {
    Solution& s = state_->problems[i];
    if (detail::SolutionAccess::is_shared(s)) s = state_->settled.make();
    const Parts start = of_problem(x0, i), parameters = of_problem(theta, i);
    naming_problem(i, [&] { detail::check_shapes(state_of(s), start, parameters); });
    state_of(s).solve({start.begin(), start.end()}, {parameters.begin(), parameters.end()});
  });
  return ManySolutions(state_);
}

ManySolutions solve_many(const Solver& solver, const std::vector<Many>& x0, const std::vector<Many>& theta,
                         const Estimator& estimator) {
  return PreparedMany(solver, x0, theta, estimator).solve(theta);
}

ManySolutions solve_many(const Solver& solver, const std::vector<Many>& theta, const Estimator& estimator) {
  return PreparedMany(solver, theta, estimator).solve(theta);
}

}  // namespace onestep
