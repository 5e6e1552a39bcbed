// What `onestep paper` computes: items, each with figures, tables and claims. Drawing reads nothing else, so that a saved
// results.json can be drawn again without computing.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "page/figure.h"

namespace onestep::app::paper {

using Json = nlohmann::ordered_json;

using page::Axis, page::Figure, page::Panel, page::Series, page::Table;

/// Something that is said, and what was measured.
struct Claim {
  std::string says, measured;
  std::string verdict = "no";   ///< yes, no, or differs: not what is said, and `measured` explains why
  std::string whose = "paper";  ///< paper or ours
};
/// A claim that is true or not.
inline std::string yes_if(bool holds) { return holds ? "yes" : "no"; }
/// One that a difference is known for.
inline std::string differs_unless(bool holds) { return holds ? "yes" : "differs"; }

struct Item {
  std::string name, title;
  std::string status = "done";  ///< done, failed or cancelled
  std::string reason;           ///< why not done
  double seconds = 0;
  std::vector<Figure> figures = {};
  std::vector<Table> tables = {};
  std::vector<Claim> claims = {};
  Json data = Json::object();  ///< numbers that tests look at: orders, exponents, differences
};

struct Results {
  std::string version, date;
  Json machine = Json::object(), options = Json::object();
  std::vector<Item> items;
};

/// How the claims came out: `26 of the paper's 30 claims hold, 4 differ for the reason given; 4 of our 4 claims hold`. Empty
/// without claims.
std::string tally_of(const Results& results);

Json to_json(const Results& results);
/// Throws app::Misuse, naming what is missing, when the document is not one of ours.
Results from_json(const Json& document);

}  // namespace onestep::app::paper
