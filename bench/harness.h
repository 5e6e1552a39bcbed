// Timing for the benchmarks: contenders take turns within one run, so that what disturbs one disturbs the other, and a row
// is the median over the turns of each time and of their ratio. Rows are printed as a table and written as JSON.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace onestep::bench {

struct Options {
  std::string json;    // the file to write; none when empty
  std::string filter;  // only rows whose name contains this
  bool quick = false;  // few repetitions: does it run, roughly how fast
};

enum class Unit { us, ms, MB, MB_per_s, count };

// What a row has to hold: a ratio at most (ours/floor), a ratio at least (a speed-up, floor/ours), or an amount at most or
// at least, in the row's unit.
struct Bar {
  enum class Kind { ratio_at_most, ratio_at_least, amount_at_most, amount_at_least } kind;
  double value;
};
constexpr Bar at_most_ratio(double value) { return {Bar::Kind::ratio_at_most, value}; }
constexpr Bar at_least_ratio(double value) { return {Bar::Kind::ratio_at_least, value}; }
constexpr Bar at_most(double value) { return {Bar::Kind::amount_at_most, value}; }
constexpr Bar at_least(double value) { return {Bar::Kind::amount_at_least, value}; }

struct Row {
  std::string name;
  Unit unit;
  double ours;
  std::optional<double> floor, ratio;
  std::optional<Bar> bar;          // none: the row only reports
  std::optional<double> gradient;  // its norm where a solve ended: a peer has to get there too

  bool holds() const;
};

// Somebody who does the work: `run` does it once, `before` (if any) makes ready for a turn and is not timed. What is
// reported is the time of one of `units`, such as the iterations of a solve; for MB_per_s the units are megabytes, and what
// is reported is how many the calling thread does in a second of its own time: what one core does, whatever else it runs.
struct Contender {
  std::function<void()> run;
  std::function<void()> before = {};
  double units = 1;
};

class Suite {
 public:
  Suite(std::string name, Options options);

  bool wants(std::string_view row) const;
  bool quick() const { return options_.quick; }
  /// All rows are run, not only those asked for by name.
  bool all() const { return options_.filter.empty(); }

  // Times the two in turn. Without a floor the bar, if any, has to be an amount.
  void time(const std::string& row, Unit unit, const Contender& ours, const std::optional<Contender>& floor,
            std::optional<Bar> bar);

  // A row that is not a time of this suite's own taking: an amount of memory, or a second bar on a row already timed.
  void amount(const std::string& row, Unit unit, double ours, std::optional<Bar> bar,
              std::optional<double> floor = std::nullopt);
  // Where the solve of a row ended: the norm of the gradient, which the JSON has.
  void ended_at(const std::string& row, double gradient);
  // A line to be printed below the table, once.
  void note(std::string text);

  const std::string& name() const { return name_; }
  const std::vector<Row>& rows() const { return rows_; }
  void print() const;

 private:
  void progress(std::string_view text) const;

  std::string name_;
  Options options_;
  std::vector<Row> rows_;
  std::vector<std::string> notes_;
};

// The rows of all suites as one JSON list.
void write_json(const std::string& file, const std::vector<Suite>& suites);

}  // namespace onestep::bench
