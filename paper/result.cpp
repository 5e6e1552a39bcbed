// Results to and from JSON, and the check of what drawing relies on.
#include "paper/result.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/common.h"
#include "page/json.h"

namespace onestep::app::paper {

// Where page/json.h finds them: not in a namespace without a name.
template <class M> void members(M& m, Claim& c) {
  m("says", c.says)("measured", c.measured)("verdict", c.verdict)("whose", c.whose);
}
template <class M> void members(M& m, Item& i) {
  m("name", i.name)("title", i.title)("status", i.status)("reason", i.reason)("seconds", i.seconds);
  m("figures", i.figures)("tables", i.tables)("claims", i.claims)("data", i.data);
}
template <class M> void members(M& m, Results& r) {
  m("version", r.version)("date", r.date)("machine", r.machine)("options", r.options)("items", r.items);
}

// Files from before there were three verdicts say whether a claim holds.
static void read(const Json& from, const std::string& where, Claim& to) {
  Json now = from;
  if (from.is_object() && from.contains("holds") && !from.contains("verdict")) {
    bool holds = false;
    page::read(from["holds"], where + ".holds", holds);
    now["verdict"] = yes_if(holds);
    now["whose"] = from.value("says", "").starts_with("Ours: ") ? "ours" : "paper";
  }
  page::read<Claim>(now, where, to);
}

namespace {

using page::wrong;

// What drawing relies on and the types do not say.
void check(const Results& results) {
  std::set<std::string> figures, tables;
  const auto check_id = [](const std::string& id, std::set<std::string>& ids) {
    const bool good = !id.empty() && std::ranges::all_of(id, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    });
    if (!good) wrong(fmt::format("the id '{}'", id), "has other characters than letters, digits, - and _");
    if (!ids.insert(id).second) wrong(fmt::format("the id '{}'", id), "is there twice");
  };
  for (const Item& item : results.items) {
    if (item.status != "done" && item.status != "failed" && item.status != "cancelled")
      wrong(fmt::format("the status of {}", item.name), "is none of done, failed and cancelled");
    for (const Claim& claim : item.claims) {
      if (claim.verdict != "yes" && claim.verdict != "no" && claim.verdict != "differs")
        wrong(fmt::format("the verdict on '{}'", claim.says), "is none of yes, no and differs");
      if (claim.whose != "paper" && claim.whose != "ours")
        wrong(fmt::format("whose claim '{}' is", claim.says), "is neither paper nor ours");
    }
    for (const Figure& figure : item.figures) {
      check_id(figure.id, figures);
      for (const Panel& panel : figure.panels)
        for (const Series& s : panel.series) {
          const std::string where = fmt::format("the curve '{}' of {}", s.label, figure.id);
          if (s.x.size() != s.y.size()) wrong(where, "has not as many x as y");
          if (s.low.size() != s.high.size() || (!s.low.empty() && s.low.size() != s.y.size()))
            wrong(where, "has a band of another length");
        }
    }
    for (const Table& table : item.tables) {
      check_id(table.id, tables);
      for (const auto& row : table.rows)
        if (row.size() != table.columns.size())
          wrong(fmt::format("a row of {}", table.id), "has not as many cells as columns");
    }
  }
}

}  // namespace

std::string tally_of(const Results& results) {
  std::string text;
  for (const auto& [whose, words] : {std::pair{"paper", "the paper's"}, {"ours", "our"}}) {
    int all = 0, hold = 0, differ = 0;
    for (const Item& item : results.items)
      for (const Claim& claim : item.claims)
        if (claim.whose == whose) {
          ++all;
          hold += claim.verdict == "yes" ? 1 : 0;
          differ += claim.verdict == "differs" ? 1 : 0;
        }
    if (all == 0) continue;
    text += fmt::format("{}{} of {} {} claims hold", text.empty() ? "" : "; ", hold, words, all);
    if (differ > 0) text += fmt::format(", {} differ{} for the reason given", differ, differ == 1 ? "s" : "");
    if (const int fail = all - hold - differ; fail > 0) text += fmt::format(", {} do{} not", fail, fail == 1 ? "es" : "");
  }
  return text;
}

Json to_json(const Results& results) { return page::json_of(results); }

Results from_json(const Json& document) {
  Results results;
  page::read(document, "", results);
  check(results);
  return results;
}

}  // namespace onestep::app::paper
