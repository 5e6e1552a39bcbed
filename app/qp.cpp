// onestep qp FILE: solves a quadratic program in a QPS or MPS file, and says how its data move the solution.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json_document.h"
#include "onestep/qps.h"
#include "onestep/quadratic_program.h"
#include "verbs.h"

namespace onestep::app {

namespace {

struct QpOptions : CommonOptions {
  std::string file;
  double tolerance = 1e-9;
  bool solution = false;
  std::string gradient_of;  // objective, half-norm, or empty
};

// The derivative of a number with respect to the data, in the file's terms.
struct Gradient {
  QuadraticProgram parts;
  double residual = 0;  // of the linear system that was solved for it, relative
  ProgramDegeneracy degeneracy;
};

Array negated(const Array& part) {
  std::vector<double> entries(part.values().begin(), part.values().end());
  for (double& e : entries) e = e == 0 ? 0 : -e;
  return {part.shape(), std::move(entries)};
}

struct Solved {
  QpsFile file;
  ProgramSolution solution;
  std::optional<Gradient> gradient = {};

  std::string name(const QpOptions& options) const {
    return file.name.empty() ? std::filesystem::path(options.file).stem().string() : file.name;
  }
  /// As the file counts: a file that maximises has the opposite of what was minimised.
  double objective() const { return file.maximise ? -solution.objective : solution.objective; }
  /// Those with Qx + q + Aᵀy + Gᵀz + bound_multipliers = 0 for the file's Q and q, also where these are maximised.
  Array multipliers(const Array& of_minimised) const { return file.maximise ? negated(of_minimised) : of_minimised; }
};

void differentiate(Solved& solved, const QpOptions& options) {
  const ProgramSolution& s = solved.solution;
  Gradient& g = solved.gradient.emplace();
  g.degeneracy = s.degeneracy();
  const bool of_objective = options.gradient_of == "objective";
  g.parts = of_objective ? s.gradient_of_objective() : s.vjp(s.x, &g.residual);
  if (!solved.file.maximise) return;
  // What was minimised has the opposite of the file's Q and q, and of its optimal value.
  QuadraticProgram& p = g.parts;
  if (of_objective)
    for (Array* part : {&p.A, &p.b, &p.G, &p.l, &p.u, &p.lo, &p.hi}) *part = negated(*part);
  else
    for (Array* part : {&p.Q, &p.q}) *part = negated(*part);
}

// Constraints are counted through: equalities, inequalities, bounds of variables.
std::vector<std::string> names_of(const std::vector<std::size_t>& constraints, const QpsFile& file) {
  std::vector<std::string> names;
  for (const std::size_t i : constraints) {
    const std::size_t rows = file.equalities.size() + file.inequalities.size();
    names.push_back(i < file.equalities.size() ? file.equalities[i]
                    : i < rows                 ? file.inequalities[i - file.equalities.size()]
                                               : "bounds of " + file.columns[i - rows]);
  }
  return names;
}

std::vector<std::string> variables_of(const std::vector<std::size_t>& variables, const QpsFile& file) {
  std::vector<std::string> names;
  for (const std::size_t j : variables) names.push_back(file.columns[j]);
  return names;
}

Json to_json(std::span<const double> numbers) { return std::vector<double>(numbers.begin(), numbers.end()); }

// A vector, or a matrix as a list of its rows.
Json to_json(const Array& a) {
  if (a.shape().rank() < 2) return to_json(a.values());
  Json matrix = Json::array();
  const auto columns = static_cast<std::size_t>(a.shape()[1]);
  for (std::int64_t i = 0; i < a.shape()[0]; ++i)
    matrix.push_back(to_json(a.values().subspan(static_cast<std::size_t>(i) * columns, columns)));
  return matrix;
}

Json to_json(const Gradient& g, const QpsFile& file, const QpOptions& options) {
  Json result = {{"of", options.gradient_of}};
  const QuadraticProgram& p = g.parts;
  for (const auto& [name, part] :
       {std::pair{"q", &p.q}, {"b", &p.b}, {"l", &p.l}, {"u", &p.u}, {"lo", &p.lo}, {"hi", &p.hi}})
    result[name] = to_json(*part);
  if (options.solution)
    for (const auto& [name, part] : {std::pair{"Q", &p.Q}, {"A", &p.A}, {"G", &p.G}}) result[name] = to_json(*part);
  result["residual"] = g.residual;
  result["undecided"] = names_of(g.degeneracy.undecided, file);
  result["dependent"] = names_of(g.degeneracy.dependent, file);
  result["not_unique"] = variables_of(g.degeneracy.not_unique, file);
  return result;
}

// Whether the point it ended at says something of the program: not where there is no solution, or nothing was solved.
bool has_point(Status status) {
  return status != Status::infeasible && status != Status::unbounded && status != Status::not_convex &&
         status != Status::not_finite;
}

Json own_members(const Solved& solved, const QpOptions& options) {
  const ProgramSolution& s = solved.solution;
  const bool known = has_point(s.status);
  const auto number = [known](double value) { return known ? Json(value) : Json(); };
  Json document = {{"name", solved.name(options)},
                   {"n", solved.file.columns.size()},
                   {"equalities", solved.file.equalities.size()},
                   {"inequalities", solved.file.inequalities.size()},
                   {"iterations", s.iterations},
                   {"objective", number(solved.objective())},
                   {"primal_residual", number(s.primal.relative)},
                   {"dual_residual", number(s.dual.relative)},
                   {"gap", number(s.gap.relative)},
                   {"absolute",
                    {{"primal_residual", number(s.primal.absolute)},
                     {"dual_residual", number(s.dual.absolute)},
                     {"gap", number(s.gap.absolute)}}}};
  if (options.solution) {
    document["x"] = known ? to_json(s.x) : Json();
    for (const auto& [name, part] : {std::pair{"y", &s.y}, {"z", &s.z}, {"bound_multipliers", &s.bound_multipliers}})
      document[name] = known ? to_json(solved.multipliers(*part)) : Json();
    // Why there is no solution: see ProgramSolution for what these prove.
    if (!s.infeasibility.is_empty())
      document["proof"] = {{"y", to_json(s.infeasibility.y)},
                           {"z", to_json(s.infeasibility.z)},
                           {"bound_multipliers", to_json(s.infeasibility.bound_multipliers)}};
    if (s.unbounded_direction.size() > 0) document["proof"] = {{"direction", to_json(s.unbounded_direction)}};
  }
  if (solved.gradient) document["gradient"] = to_json(*solved.gradient, solved.file, options);
  return document;
}

std::string count(std::size_t n, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", n, n == 1 ? one : many);
}

// Names and two columns of numbers, aligned.
std::string table(std::string_view title, const std::vector<std::string>& names, std::string_view first,
                  const Array& first_column, std::string_view second = "",
                  const Array& second_column = Array(Shape{0}, {})) {
  const std::span<const double> values = first_column.values(), more = second_column.values();
  if (names.empty()) return "";
  std::size_t width = title.size();
  for (const std::string& name : names) width = std::max(width, name.size());
  std::string text =
      fmt::format("\n{:<{}}  {:>17}{}\n", title, width, first, more.empty() ? "" : fmt::format("  {:>17}", second));
  for (std::size_t i = 0; i < names.size(); ++i)
    text += fmt::format("{:<{}}  {:>17.10g}{}\n", names[i], width, values[i],
                        more.empty() ? "" : fmt::format("  {:>17.10g}", more[i]));
  return text;
}

// The largest derivatives with respect to vectors; the JSON has all.
std::string text_of(const Gradient& g, const QpsFile& file, const QpOptions& options) {
  struct Named {
    double value;
    std::string name;
  };
  std::vector<Named> all;
  const auto add = [&](std::string_view part, const Array& values, const std::vector<std::string>& names) {
    for (std::size_t i = 0; i < names.size(); ++i)
      if (const double value = values.values()[i]; value != 0)
        all.push_back({value, fmt::format("{} of {}", part, names[i])});
  };
  add("q", g.parts.q, file.columns);
  add("b", g.parts.b, file.equalities);
  add("l", g.parts.l, file.inequalities);
  add("u", g.parts.u, file.inequalities);
  add("lo", g.parts.lo, file.columns);
  add("hi", g.parts.hi, file.columns);
  const std::size_t most = std::min<std::size_t>(all.size(), 10);
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(most), all.end(),
                    [](const Named& a, const Named& b) { return std::fabs(a.value) > std::fabs(b.value); });
  std::string text = fmt::format("\nderivative of the {} with respect to{}\n", options.gradient_of,
                                 most < all.size() ? fmt::format(" (the {} largest of {})", most, all.size()) : "");
  std::size_t width = 0;
  for (std::size_t i = 0; i < most; ++i) width = std::max(width, all[i].name.size());
  for (std::size_t i = 0; i < most; ++i) text += fmt::format("{:<{}}  {:>17.10g}\n", all[i].name, width, all[i].value);
  const auto warn = [&](std::string_view what, const std::vector<std::string>& names) {
    if (names.empty()) return;
    const std::size_t shown = std::min<std::size_t>(names.size(), 5);
    text +=
        fmt::format("{}: {}{}\n", what, fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                    shown < names.size() ? fmt::format(" and {} more", names.size() - shown) : "");
  };
  warn("not differentiable, slack and multiplier both vanish", names_of(g.degeneracy.undecided, file));
  warn("multipliers are not unique, constraints depend on each other", names_of(g.degeneracy.dependent, file));
  warn("the solution is not unique", variables_of(g.degeneracy.not_unique, file));
  return text;
}

// What a status means, and the option that gives more or asks for less.
std::string advice(Status status) {
  switch (status) {
    case Status::infeasible:
      return "No point satisfies all constraints; --solution --json has multipliers under which they contradict each other.";
    case Status::unbounded:
      return "The objective decreases without limit along a ray that --solution --json has: a constraint is missing, or a "
             "sign is wrong.";
    case Status::rounding_reached:
      return "The residuals stopped decreasing above the tolerance, as far as rounding allows; a larger --tol accepts them.";
    case Status::iteration_limit:
      return "The tolerance was not met in the iterations allowed; the best point is given. A larger --tol asks for less.";
    case Status::cancelled: return "Stopped by a signal; the last point is given.";
    case Status::not_finite:
      return "Numbers became infinite on the way: look for entries that are much larger than the others.";
    case Status::singular:
      return "A matrix could not be factored: look for constraints that repeat each other, and for entries that are much "
             "larger than the others.";
    default: return explain(status);
  }
}

// A negative UP bound without a lower one is read in two ways by those who read such files.
std::string how_bounds_were_read(const QpsFile& file) {
  const std::span<const double> lo = file.problem.lo.values(), hi = file.problem.hi.values();
  for (std::size_t j = 0; j < lo.size() && j < hi.size(); ++j)
    if (std::isinf(lo[j]) && hi[j] < 0)
      return fmt::format(
          " The variable {} is at most {:g} without a lower bound: that is how a negative UP bound is read where no lower "
          "bound stands before it; if 0 was meant, which leaves no value, say LO 0.",
          file.columns[j], hi[j]);
  return "";
}

std::string advice(const Solved& solved) {
  const Status status = solved.solution.status;
  if (status == Status::unbounded && solved.file.maximise)
    return "The objective increases without limit along a ray that --solution --json has: a constraint is missing, or a "
           "sign is wrong.";
  return advice(status) + (status == Status::infeasible ? how_bounds_were_read(solved.file) : "");
}

std::string text_of(const Solved& solved, const QpOptions& options) {
  const ProgramSolution& s = solved.solution;
  std::string text =
      fmt::format("{}: {}, {}, {}\n", solved.name(options), count(solved.file.columns.size(), "variable", "variables"),
                  count(solved.file.equalities.size(), "equality", "equalities"),
                  count(solved.file.inequalities.size(), "inequality", "inequalities"));
  text += fmt::format("{} in {}, {:.3g} s\n", to_string(s.status),
                      count(static_cast<std::size_t>(s.iterations), "iteration", "iterations"), s.seconds);
  if (s.status != Status::converged) text += fmt::format("{}\n", advice(solved));
  if (!has_point(s.status)) return text;
  text += fmt::format("\nobjective  {:.10g}\n\n", solved.objective());
  text += fmt::format("{:<15}  {:>9}  {:>9}\n", "", "relative", "absolute");
  const auto residual = [&](std::string_view name, const ProgramResidual& r) {
    text += fmt::format("{:<15}  {:>9.2g}  {:>9.2g}\n", name, r.relative, r.absolute);
  };
  residual("primal residual", s.primal);
  residual("dual residual", s.dual);
  residual("gap", s.gap);
  if (options.solution) {
    text += table("variable", solved.file.columns, "x", s.x, "bound multiplier", solved.multipliers(s.bound_multipliers));
    text += table("equality", solved.file.equalities, "multiplier", solved.multipliers(s.y));
    text += table("inequality", solved.file.inequalities, "multiplier", solved.multipliers(s.z));
  }
  if (solved.gradient) text += text_of(*solved.gradient, solved.file, options);
  return text;
}

Ending ending_of(const Solved& solved) {
  const Status status = solved.solution.status;
  return {.status = to_string(status),
          .usable = is_solution(status),
          .message = status == Status::converged ? "" : advice(solved)};
}

int solve_qp(const QpOptions& options) {
  options.clock->enter("reading");
  Solved solved{read_qps(options.file), {}};
  {
    Progress progress(options);
    ProgramOptions settings{.tolerance = options.tolerance, .absolute_tolerance = options.tolerance};
    settings.callback = [&](const ProgramIteration& p) {
      progress.show([&] {
        return fmt::format("{}: iteration {}, residuals {:.1e} {:.1e}, gap {:.1e}", solved.name(options), p.number,
                           p.primal.absolute, p.dual.absolute, p.gap.absolute);
      });
      return stop_signal() != 0;
    };
    progress.enter("solve");
    solved.solution = solve(solved.file.problem, settings);
    if (!options.gradient_of.empty() && is_solution(solved.solution.status)) {
      progress.enter("derivative");
      differentiate(solved, options);
    }
  }

  const std::string document = to_text(document_of(options, ending_of(solved), own_members(solved, options)));
  if (!options.out.empty()) write_file(options, std::filesystem::path(options.file).stem().string() + ".json", document);
  print(options.json ? document : text_of(solved, options));
  if (stop_signal() != 0) return 128 + stop_signal();
  return is_solution(solved.solution.status) ? done : failed;
}

}  // namespace

void add_qp(CommandLine& line) {
  auto options = std::make_shared<QpOptions>();
  line.add({.name = "qp",
            .job = "Solve a quadratic program in a QPS or MPS file (plain, gz or bz2).",
            .example = "onestep qp QAFIRO.QPS --gradient-of objective --json",
            .common = *options,
            .options =
                {{.name = "FILE", .to = &options->file, .help = "the program", .required = true, .takes = Takes::input_file},
                 {.name = "--tol",
                  .to = &options->tolerance,
                  .type = "T",
                  .help = "the most that each residual and the gap may be, relative to the\ndata and in their units "
                          "(default 1e-9); where rounding does not\nallow that, the status is rounding_reached",
                  .takes = Takes::positive},
                 {.name = "--gradient-of",
                  .to = &options->gradient_of,
                  .type = "NUMBER",
                  .help = "also give the derivative of the optimal value (objective) or of\n|x|^2/2 (half-norm) with "
                          "respect to q, b, l, u, lo and hi,\nwith --solution to Q, A and G too, and say where there "
                          "is none",
                  .one_of = {"objective", "half-norm"}},
                 {.name = "--solution",
                  .to = &options->solution,
                  .help = "also give x and the multipliers y (equalities),\nz (inequalities) and bound_multipliers, "
                          "in the file's\norder, with Qx + q + A'y + G'z + bound_multipliers = 0 for its Q and\nq, also "
                          "where it maximises"}},
            .work = [options] { return solve_qp(*options); },
            .out_help = "write the JSON document into this folder, which is made if\nneeded",
            .seed_help = "changes nothing here: nothing is random"});
}

}  // namespace onestep::app
