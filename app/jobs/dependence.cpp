// A Cholesky factor of the Gram matrix of the features that grows column by column, and the names of what depends on what.
#include "jobs/dependence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "onestep/onestep.h"

namespace onestep::app::jobs {

namespace {

// A column whose residual is below this part of its spread is a combination of others: the threshold of R's lm.
constexpr double dependent_below = 1e-7;
// The Gram matrix knows squared residuals to about 1e-15: below this they are computed from the columns themselves.
constexpr double doubtful_below = 1e-9;
// A column whose values differ by less than this part of their size is constant.
constexpr double rounding = 16 * std::numeric_limits<double>::epsilon();

using Column = std::vector<double>;

double sum_of_products(const Column& a, const Column& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// The columns of the features with mean 0 and length 1; none for a constant one.
std::vector<Column> unit_columns(const JobData& job, const std::vector<LeftOut>& constants) {
  const auto N = static_cast<std::size_t>(job.train.count()), n = static_cast<std::size_t>(job.n());
  const std::span<const double> a = job.train.A.values();
  std::vector<Column> columns(n);
  std::vector<bool> constant(n);
  for (const LeftOut& feature : constants) constant[feature.place] = true;
  for (std::size_t j = 0; j < n; ++j) {
    Column column(N);
    double mean = 0, largest = 0;
    for (std::size_t i = 0; i < N; ++i) mean += a[i * (n + 1) + j] / static_cast<double>(N);
    for (std::size_t i = 0; i < N; ++i) {
      column[i] = a[i * (n + 1) + j] - mean;
      largest = std::max(largest, std::fabs(column[i]));
    }
    if (constant[j]) continue;
    for (double& e : column) e /= largest;
    double again = 0;  // what rounding left of the mean
    for (const double e : column) again += e / static_cast<double>(N);
    for (double& e : column) e -= again;
    const double length = std::sqrt(sum_of_products(column, column));
    for (double& e : column) e /= length;
    columns[j] = std::move(column);
  }
  return columns;
}

// The columns that are kept, by a Cholesky factor of their Gram matrix that grows with them.
class Kept {
 public:
  explicit Kept(const std::vector<Column>& columns) : columns_(columns) {}

  // Keeps a column unless it is a combination of those kept; then returns which it is made of.
  std::optional<std::vector<std::size_t>> keep(std::size_t j, const std::vector<double>& products) {
    Column row = solve_lower(products);
    double square = 1 - sum_of_products(row, row);
    if (square < doubtful_below) {
      Column made_of;
      square = residual(j, row, made_of);
      if (square <= dependent_below * dependent_below) return parts_of(made_of);
    }
    row.push_back(std::sqrt(square));
    rows_.push_back(std::move(row));
    places_.push_back(j);
    return std::nullopt;
  }
  const std::vector<std::size_t>& places() const { return places_; }

 private:
  Column solve_lower(Column b) const {
    for (std::size_t i = 0; i < b.size(); ++i) {
      for (std::size_t k = 0; k < i; ++k) b[i] -= rows_[i][k] * b[k];
      b[i] /= rows_[i][i];
    }
    return b;
  }
  void solve_upper(Column& b) const {
    for (std::size_t i = b.size(); i-- > 0;) {
      b[i] /= rows_[i][i];
      for (std::size_t k = 0; k < i; ++k) b[k] -= rows_[i][k] * b[i];
    }
  }
  // The squared residual of a column after its projection on the kept ones, which is refined: what remains is projected
  // again, so that it is accurate where the difference above is not.
  double residual(std::size_t j, Column first, Column& coefficients) const {
    constexpr int refinements = 3;
    Column rest = columns_[j];
    coefficients.assign(places_.size(), 0);
    Column step = std::move(first);
    for (int pass = 0;; ++pass) {
      solve_upper(step);
      for (std::size_t k = 0; k < places_.size(); ++k) {
        coefficients[k] += step[k];
        const Column& column = columns_[places_[k]];
        for (std::size_t i = 0; i < rest.size(); ++i) rest[i] -= step[k] * column[i];
      }
      if (pass == refinements) return sum_of_products(rest, rest);
      for (std::size_t k = 0; k < places_.size(); ++k) step[k] = sum_of_products(columns_[places_[k]], rest);
      step = solve_lower(std::move(step));
    }
  }
  std::vector<std::size_t> parts_of(const Column& coefficients) const {
    constexpr double counts = 1e-6;
    std::vector<std::size_t> parts;
    for (std::size_t k = 0; k < coefficients.size(); ++k)
      if (std::fabs(coefficients[k]) > counts) parts.push_back(places_[k]);
    return parts;
  }

  const std::vector<Column>& columns_;
  std::vector<std::size_t> places_;
  std::vector<Column> rows_;
};

Array gram_of(const std::vector<Column>& columns, std::size_t N) {
  std::vector<double> entries;
  entries.reserve(columns.size() * N);
  for (const Column& column : columns) {
    if (column.empty()) entries.insert(entries.end(), N, 0.0);
    entries.insert(entries.end(), column.begin(), column.end());
  }
  const Array rows(Shape{static_cast<std::int64_t>(columns.size()), static_cast<std::int64_t>(N)}, std::move(entries));
  return evaluate(traced([](Expr z) { return matmul(z, transpose(z)); }, rows.shape()), {rows})[0];
}

// Whether two features have the same values in the file.
bool are_equal(const JobData& job, std::size_t j, std::size_t k) {
  const auto equal_in = [j, k](std::span<const double> v) { return v[j] == v[k]; };
  if (job.scaling && !(equal_in(job.scaling->mean.values()) && equal_in(job.scaling->scale.values()))) return false;
  const std::span<const double> a = job.train.A.values();
  const auto n = static_cast<std::size_t>(job.n());
  for (std::size_t first = 0; first < a.size(); first += n + 1)
    if (!equal_in(a.subspan(first, n))) return false;
  return true;
}

// Of a feature that is a + b times another.
std::string relation_to(const JobData& job, std::size_t j, std::size_t k) {
  const std::string& other = job.features[k];
  if (are_equal(job, j, k)) return fmt::format("equals {}", other);
  constexpr double same = 1e-6;
  const Scaling now = standardisation(job.train.A);
  const auto spread = [&](std::size_t f) {
    return now.scale.values()[f] * (job.scaling ? job.scaling->scale.values()[f] : 1);
  };
  const auto mean = [&](std::size_t f) {
    return job.scaling ? now.mean.values()[f] * job.scaling->scale.values()[f] + job.scaling->mean.values()[f]
                       : now.mean.values()[f];
  };
  double product = 0;
  const auto n = static_cast<std::size_t>(job.n());
  for (std::size_t row = 0; row < job.train.A.values().size(); row += n + 1)
    product += (job.train.A.values()[row + j] - now.mean.values()[j]) / now.scale.values()[j] *
               ((job.train.A.values()[row + k] - now.mean.values()[k]) / now.scale.values()[k]);
  const double difference = mean(j) - mean(k);
  if (product < 0 || std::fabs(spread(j) / spread(k) - 1) > same) return fmt::format("is {} in another unit", other);
  if (std::fabs(difference) > same * spread(k)) return fmt::format("is {} plus a constant, {:.6g}", other, difference);
  return fmt::format("equals {} but for differences that are tiny beside its spread", other);
}

std::string combination_of(const JobData& job, std::size_t feature, const std::vector<std::size_t>& parts) {
  constexpr std::size_t most = 5;
  std::vector<std::string> names;
  for (const std::size_t j : parts) names.push_back(job.features[j]);
  if (names.size() == 1) return relation_to(job, feature, parts[0]);
  const std::size_t more = names.size() > most ? names.size() - most : 0;
  names.resize(names.size() - more);
  return fmt::format("is a linear combination of {}{}", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

Array without_columns(const Array& A, const std::vector<bool>& out) {
  const auto n = static_cast<std::size_t>(A.shape().rank() == 2 ? A.shape()[1] : A.shape()[0]);
  std::vector<double> entries;
  entries.reserve(A.values().size());
  for (std::size_t i = 0; i < A.values().size(); ++i)
    if (i % n >= out.size() || !out[i % n]) entries.push_back(A.values()[i]);
  const auto width = static_cast<std::int64_t>(n) - std::ranges::count(out, true);
  return {A.shape().rank() == 2 ? Shape{A.shape()[0], width} : Shape{width}, std::move(entries)};
}

}  // namespace

std::vector<LeftOut> constant_features(const JobData& job) {
  const auto n = static_cast<std::size_t>(job.n());
  const std::span<const double> a = job.train.A.values();
  std::vector<double> low(a.begin(), a.begin() + job.n()), high = low;
  for (std::size_t first = 0; first < a.size(); first += n + 1)
    for (std::size_t j = 0; j < n; ++j) {
      low[j] = std::min(low[j], a[first + j]);
      high[j] = std::max(high[j], a[first + j]);
    }
  std::vector<LeftOut> constant;
  for (std::size_t j = 0; j < n; ++j) {
    double spread = high[j] - low[j], size = std::max(std::fabs(low[j]), std::fabs(high[j]));
    if (job.scaling) {  // as it was before
      spread *= job.scaling->scale.values()[j];
      size = std::fabs(job.scaling->mean.values()[j]);
    }
    if (spread <= rounding * size || spread == 0) constant.push_back({j, "is constant", true});
  }
  return constant;
}

std::vector<LeftOut> dependent_features(const JobData& job) {
  std::vector<LeftOut> found = constant_features(job);
  const std::vector<Column> columns = unit_columns(job, found);
  const auto N = static_cast<std::size_t>(job.train.count());
  const Array gram = gram_of(columns, N);
  Kept kept(columns);
  bool combinations = false;
  for (std::size_t j = 0; j < columns.size(); ++j) {
    if (columns[j].empty()) continue;
    std::vector<double> products;
    for (const std::size_t k : kept.places())
      products.push_back(gram(static_cast<std::int64_t>(j), static_cast<std::int64_t>(k)));
    const auto parts = kept.keep(j, products);
    if (!parts) continue;
    combinations = true;
    found.push_back({j, combination_of(job, j, *parts)});
  }
  if (combinations && kept.places().size() + 1 >= N)
    throw Misuse(
        fmt::format("{}: {} samples do not determine {} coefficients and an intercept: without a penalty there are many "
                    "best fits; give --l2 above 0",
                    job.name, N, columns.size()));
  std::ranges::sort(found, {}, &LeftOut::place);
  return found;
}

void leave_out(JobData& job, const std::vector<LeftOut>& features) {
  if (features.empty()) return;
  constexpr std::size_t most_said = 10;
  std::vector<bool> out(job.features.size());
  if (job.kept.empty())
    for (std::size_t j = 0; j < job.features.size(); ++j) job.kept.push_back(j);
  for (std::size_t k = 0; k < features.size(); ++k) {
    out[features[k].place] = true;
    const std::string& name = job.features[features[k].place];
    job.left_out.emplace_back(name, features[k].why);
    if (k < most_said) job.notes.push_back(fmt::format("{} is left out: it {}", name, features[k].why));
  }
  if (features.size() > most_said)
    job.notes.push_back(fmt::format("{} more features are left out for such reasons", features.size() - most_said));
  const auto remove = [&](auto& list) {
    std::size_t place = 0;
    std::erase_if(list, [&](const auto&) { return out[place++]; });
  };
  remove(job.features);
  remove(job.kept);
  if (job.features.empty()) throw Misuse(fmt::format("{}: no feature is left: all are constant", job.name));
  for (Samples* samples : {&job.train, job.valid ? &*job.valid : nullptr, job.test ? &*job.test : nullptr})
    if (samples != nullptr) samples->A = without_columns(samples->A, out);
  if (job.scaling) job.scaling = Scaling{without_columns(job.scaling->mean, out), without_columns(job.scaling->scale, out)};
  job.image_side = 0;
}

}  // namespace onestep::app::jobs
