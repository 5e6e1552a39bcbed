// A solve as a node of a traced function. With OneStep or KStep, and a step that can be traced, it is Algorithm 3 of the
// paper: the solve itself has no derivative, and the steps behind it are ordinary nodes, so that derivatives of any order
// are taken through them (K Newton steps give those up to order 2^K - 1). Otherwise the node's jvp and vjp are the
// estimator's.
#include <algorithm>
#include <mutex>

#include "estimate/state.h"
#include "solve/lambda.h"
#include "solve/traced_map.h"

namespace onestep::detail {
namespace {

/// The arrays of a call, as the solver wants them.
std::vector<Array> arrays(std::span<const std::span<const double>> values, const std::vector<Shape>& shapes) {
  std::vector<Array> result;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    result.emplace_back(shapes[i], std::vector<double>(values[i].begin(), values[i].end()));
  return result;
}

bool same(const OneStep&, const OneStep&) { return true; }
bool same(const KStep& a, const KStep& b) { return a.K == b.K; }
bool same(const Implicit& a, const Implicit& b) {
  return a.how == b.how && a.tolerance == b.tolerance && a.max_iterations == b.max_iterations && a.on_step == b.on_step &&
         !a.preconditioner && !b.preconditioner;  // functions cannot be compared
}
bool same(const Unrolled& a, const Unrolled& b) { return a.mode == b.mode && a.memory == b.memory; }
bool same(const Auto& a, const Auto& b) { return a.tolerance == b.tolerance; }
bool same(const std::same_as<Estimator> auto& a, const std::same_as<Estimator> auto& b) {
  return std::visit(
      [](const auto& one, const auto& other) {
        if constexpr (std::is_same_v<decltype(one), decltype(other)>)
          return same(one, other);
        else
          return false;
      },
      a.kind(), b.kind());
}
bool same(const SolveOptions& a, const SolveOptions& b) {
  return a.tolerance == b.tolerance && a.max_iterations == b.max_iterations && a.typical_x == b.typical_x &&
         a.time_limit == b.time_limit && !a.callback && !b.callback && a.log == b.log && a.history == b.history;
}
bool same(const Parts& a, const Parts& b) {
  return std::ranges::equal(a, b, [](const Array& one, const Array& other) {
    const Array first = one.contiguous(), second = other.contiguous();
    return first.shape() == second.shape() && std::ranges::equal(first.values(), second.values());
  });
}

/// A solve with the data its lambda had when the node was made.
class SolveNode final : public SolveInside {
 public:
  /// How its derivative is found: by the estimator, by steps behind it, or by one that has the right first derivative alone.
  enum class By { estimator, steps, first_order_step };
  SolveNode(std::shared_ptr<const Method> method, SolveOptions options, Parts x0, std::vector<Shape> theta,
            Estimator estimator, By by)
      : method_(std::move(method)),
        options_(std::move(options)),
        x0_(std::move(x0)),
        shapes_(std::move(theta)),
        estimator_(std::move(estimator)),
        by_(by) {}

  std::string name() const override { return "solve"; }
  Shape shape(std::span<const Shape>) const override {
    std::vector<Shape> parts;
    for (const Array& a : x0_) parts.push_back(a.shape());
    return {static_cast<std::int64_t>(flat_size(parts))};
  }
  bool has_jvp() const override { return true; }
  bool has_vjp() const override { return true; }
  std::shared_ptr<const Foreign> precise() const override {
    constexpr double to_rounding = 1e-15;
    constexpr int as_many_times = 10;
    SolveOptions options = options_;
    options.tolerance = std::min(options.tolerance, to_rounding);
    options.max_iterations =
        static_cast<int>(std::min<std::int64_t>(std::int64_t{as_many_times} * options.max_iterations, 1 << 30));
    options.callback = nullptr;
    options.log = nullptr;
    return std::make_shared<const SolveNode>(method_->precise ? method_->precise.shared() : method_, std::move(options), x0_,
                                             shapes_, Implicit{.tolerance = to_rounding}, by_);
  }
  std::string left_out() const override {
    if (by_ != By::estimator && !method_->superlinear)
      return "a solve inside is differentiated by its last steps, which converge linearly";
    return method_->inside_left_out;
  }
  bool has_first_derivative_only() const override { return by_ == By::first_order_step; }
  bool is_for(const std::shared_ptr<const Method>& method, const SolveOptions& options, const Parts& x0,
              const Estimator& estimator) const {
    return method_ == method && same(options_, options) && same(estimator_, estimator) && same(x0_, x0);
  }

  void apply(std::span<const std::span<const double>> arguments, std::span<double> result) const override {
    const Lease lease = solved(arguments);
    const Run& run = state_of(*lease.entry->solution).run;
    if (is_solution(run.status))
      std::copy_n(run.x.begin(), result.size(), result.begin());
    else
      fill(result, std::numeric_limits<double>::quiet_NaN());
  }
  void jvp(std::span<const std::span<const double>> arguments, std::span<const std::span<const double>> tangents,
           std::span<double> result) const override {
    const Lease lease = solved(arguments);
    if (!is_solution(lease.entry->solution->status()) || !std::ranges::all_of(tangents, all_finite))
      return fill(result, std::numeric_limits<double>::quiet_NaN());
    lease.entry->solution->jvp_into(arrays(tangents, shapes_), result);
    if (lease.entry->solution->report().status == Status::singular) fill(result, std::numeric_limits<double>::quiet_NaN());
  }
  void vjp(std::span<const std::span<const double>> arguments, std::span<const double> cotangent, std::size_t which,
           std::span<double> result) const override {
    const Lease lease = solved(arguments);
    Entry& entry = *lease.entry;
    if (!is_solution(entry.solution->status()) || !all_finite(cotangent))
      return fill(result, std::numeric_limits<double>::quiet_NaN());
    if (!entry.vjp_of || !std::ranges::equal(*entry.vjp_of, cotangent)) {
      entry.vjp_of.reset();
      entry.vjp = memory_for(state_of(*entry.solution).method->step->parameters);
      std::vector<ConstVector> parts;
      for (ConstVector rest = cotangent; const Array& a : x0_) {
        parts.push_back(rest.first(static_cast<std::size_t>(a.size())));
        rest = rest.subspan(parts.back().size());
      }
      entry.solution->vjp_into(parts, std::vector<Vector>(entry.vjp.begin(), entry.vjp.end()));
      if (entry.solution->report().status == Status::singular)  // there is no derivative
        for (auto& part : entry.vjp) fill(part, std::numeric_limits<double>::quiet_NaN());
      entry.vjp_of.emplace(cotangent.begin(), cotangent.end());
    }
    std::ranges::copy(entry.vjp[which], result.begin());
  }

 private:
  // A solve that may be used again: value and derivatives at the same θ come one after the other.
  struct Entry {
    std::vector<std::vector<double>> theta;
    std::optional<Prepared> prepared;
    std::optional<Solution> solution;  // for theta; none while it is being made
    std::optional<std::vector<double>> vjp_of;
    std::vector<std::vector<double>> vjp;
    bool busy = false;
  };
  struct Lease {
    const SolveNode* node;
    std::shared_ptr<Entry> entry;
    Lease(const SolveNode* its_node, std::shared_ptr<Entry> its_entry) : node(its_node), entry(std::move(its_entry)) {}
    Lease(Lease&& other) noexcept : node(other.node), entry(std::move(other.entry)) {}
    ~Lease() {
      if (!entry) return;
      const std::lock_guard lock(node->mutex_);
      entry->busy = false;
    }
  };

  Lease solved(std::span<const std::span<const double>> arguments) const {
    const auto is_of_arguments = [&](const Entry& e) {
      return e.solution &&
             std::ranges::equal(e.theta, arguments, [](const auto& a, const auto& b) { return std::ranges::equal(a, b); });
    };
    std::shared_ptr<Entry> entry;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& e : entries_)
        if (!e->busy && (!entry || is_of_arguments(*e))) entry = e;
      if (!entry) entries_.push_back(entry = std::make_shared<Entry>());
      entry->busy = true;
    }
    Lease lease(this, entry);
    if (is_of_arguments(*entry)) return lease;
    entry->solution.reset();
    entry->vjp_of.reset();
    entry->theta.clear();
    for (const auto& a : arguments) entry->theta.emplace_back(a.begin(), a.end());
    const Parts theta(arrays(arguments, shapes_));
    if (!entry->prepared)
      entry->prepared = SolutionAccess::prepared(x0_, Settled{method_, {}, options_, {}, estimator_}.make());
    // What fails is NaN, not an exception out of the plan.
    entry->solution = entry->prepared->solve(x0_, theta).even_if_unconverged();
    return lease;
  }

  std::shared_ptr<const Method> method_;
  SolveOptions options_;
  Parts x0_;
  std::vector<Shape> shapes_;
  Estimator estimator_;
  By by_;
  mutable std::mutex mutex_;
  mutable std::vector<std::shared_ptr<Entry>> entries_;
};

// The node of an earlier trace where nothing has changed since: a function traced again then has the same graph, and its
// plan serves again.
std::shared_ptr<const Foreign> node_for(const Recipe& recipe, const Recipe::Ready& ready, const Parts& x0,
                                        const std::vector<Shape>& theta, const Estimator& estimator, SolveNode::By by) {
  const auto held = recipe.cache->hold();
  std::vector<std::weak_ptr<const Foreign>>& nodes = held->nodes;
  std::erase_if(nodes, [](const auto& node) { return node.expired(); });
  if (!ready.has_views)
    for (const auto& kept : nodes)
      if (const auto node = std::dynamic_pointer_cast<const SolveNode>(kept.lock());
          node && node->is_for(ready.method, recipe.options, x0, estimator))
        return node;
  auto made = std::make_shared<const SolveNode>(ready.method, recipe.options, x0, theta, estimator, by);
  nodes.insert(nodes.begin(), made);
  if (nodes.size() > Recipe::Cache::most_entries) nodes.pop_back();
  return made;
}

}  // namespace

Expr solve_node(const Solver& solver, std::span<const Expr> theta) {
  const Recipe& recipe = recipe_of(solver);
  std::vector<Shape> shapes, state;
  for (const Expr& t : theta) shapes.push_back(t.shape());
  const Estimator estimator = recipe.estimator     ? *recipe.estimator
                              : recipe.superlinear ? Estimator(KStep{recipe.steps_in_node})
                                                   : Estimator(Auto{});
  const int steps = facts_of(estimator).last_steps;
  const bool differentiates_steps = recipe.undamped && steps > 0;
  const Recipe::Ready ready = detail::ready(recipe, nullptr, shapes, estimator);
  // A method for steps may have parts the user does not know of.
  for (const Array& a : ready.start)
    if (state.size() < ready.method->shown) state.push_back(a.shape());
  const Parts x0(std::vector<Array>(ready.start.begin(), ready.start.begin() + static_cast<std::ptrdiff_t>(state.size())));
  const Map& step = *ready.method->step;
  const bool any_order = steps >= recipe.steps_in_node || step.is_constant();
  const auto by = !differentiates_steps ? SolveNode::By::estimator
                  : any_order           ? SolveNode::By::steps
                                        : SolveNode::By::first_order_step;
  std::shared_ptr<const Foreign> node = node_for(recipe, ready, x0, shapes, estimator, by);
  if (!differentiates_steps) {
    const Expr x = call(std::move(node), theta);
    return state.size() == 1 ? reshape(x, state[0]) : x;
  }
  constexpr int most_steps = 1000;
  if (steps > most_steps)
    throw MisuseError("[KStep] a solve inside a traced function has at most 1000 steps as nodes behind it; use Implicit{}");
  std::vector<Expr> constant;
  for (const Expr& t : theta) constant.push_back(stop_gradient(t));
  const Expr found = stop_gradient(call(std::move(node), constant));
  Expr x = found;
  for (int i = 0; i < steps; ++i) x = recipe.undamped(state, x, theta);
  // A step from NaN may have a finite derivative by θ: that of a solve that failed is NaN.
  const Expr is_there = less(max(abs(found)), std::numeric_limits<double>::infinity());
  x = x * where(is_there, 1.0, std::numeric_limits<double>::quiet_NaN());
  return state.size() == 1 ? reshape(x, state[0]) : x;
}

}  // namespace onestep::detail
