// The documents of --json, of all verbs, in success and in failure, held against the tables of docs/json.md.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "app/run_command.h"
#include "support/files.h"
#include "support/random.h"

namespace onestep::test {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

struct Member {
  std::string type;
  bool always = false;
};
using Members = std::map<std::string, Member>;

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(' '), last = text.find_last_not_of(' ');
  return first == text.npos ? "" : text.substr(first, last - first + 1);
}

// The rows `| `a`, `b` | type | when | meaning |` below each heading.
std::map<std::string, Members> tables_of(const std::string& text) {
  std::map<std::string, Members> tables;
  std::istringstream lines(text);
  std::string heading;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("## ") || line.starts_with("### ")) heading = line.substr(line.find(' ') + 1);
    if (!line.starts_with("| `")) continue;
    std::istringstream fields(line.substr(1));
    std::string names, type, when;
    std::getline(fields, names, '|'), std::getline(fields, type, '|'), std::getline(fields, when, '|');
    if (trimmed(when) != "always" && trimmed(when) != "sometimes") continue;  // the table of statuses
    std::istringstream each(names);
    for (std::string name; std::getline(each, name, ',');) {
      name = trimmed(name);
      tables[heading][name.substr(1, name.size() - 2)] = {trimmed(type), trimmed(when) == "always"};
    }
  }
  return tables;
}

bool is_of_type(const Json& value, const std::string& type) {
  if (const std::size_t either = type.find(" or "); either != type.npos)
    return is_of_type(value, type.substr(0, either)) || is_of_type(value, type.substr(either + 4));
  if (type == "text") return value.is_string();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  if (type == "list") return value.is_array();
  if (type == "object") return value.is_object();
  if (type == "null") return value.is_null();
  ADD_FAILURE() << "docs/json.md has the type " << type;
  return false;
}

class JsonDocuments : public ::testing::Test {
 protected:
  JsonDocuments() : tables_(tables_of(contents_of(repository_file("docs/json.md")))) {}

  // Two classes that overlap, and a quantity; header and target last.
  std::string samples(const std::string& name, bool quantity = false) {
    Random random(5);
    std::string text = "a,b,y\n";
    for (int i = 0; i < 80; ++i) {
      const double a = random.uniform(-1, 1), b = random.uniform(-1, 1), noise = random.uniform(-1, 1);
      text += quantity ? fmt::format("{:.3f},{:.3f},{:.3f}\n", a, b, a - b + noise)
                       : fmt::format("{:.3f},{:.3f},{}\n", a, b, a - b + noise > 0 ? "yes" : "no");
    }
    return folder_.write(name, text);
  }

  void expect_common(const Ended& ended, const Json& document) const {
    hold(document, tables_.at("All verbs"));
    ASSERT_TRUE(document.contains("usable") && document.contains("times"));
    EXPECT_EQ(document["usable"].get<bool>(), ended.status == 0) << document["status"];
    EXPECT_EQ(document["version"], ONESTEP_VERSION);
    for (const Json& note : document["notes"]) EXPECT_TRUE(note.is_string());
    double phases = 0;
    for (const auto& [phase, seconds] : document["times"].items()) {
      ASSERT_TRUE(seconds.is_number()) << phase;
      EXPECT_GE(seconds, 0) << phase;
      if (phase != "all") phases += seconds.get<double>();
    }
    EXPECT_LE(phases, document["times"]["all"].get<double>() * (1 + 1e-9));
    EXPECT_GT(document["memory"], 1 << 20) << "in bytes";
  }

  // Documents have nothing that is not written down.
  Json expect_document(std::vector<std::string> line, const std::vector<std::string>& headings) {
    line.emplace_back("--json");
    const Ended ended = run_command(line);
    SCOPED_TRACE(fmt::format("{} {}", fmt::join(line, " "), ended.err));
    EXPECT_EQ(ended.status, 0);
    EXPECT_EQ(ended.err, "");
    const Json document = ended.json();
    expect_common(ended, document);
    EXPECT_EQ(document["verb"], line[0]);
    Members known = tables_.at("All verbs");
    for (const std::string& heading : headings) {
      hold(document, tables_.at(heading));
      known.insert(tables_.at(heading).begin(), tables_.at(heading).end());
    }
    for (const auto& [key, value] : document.items()) EXPECT_TRUE(known.contains(key)) << key << " is not in docs/json.md";
    return document;
  }

  Json expect_failure(std::vector<std::string> line, int status, const std::string& word, const std::string& message) {
    line.emplace_back("--json");
    const Ended ended = run_command(line);
    SCOPED_TRACE(fmt::format("{} {}", fmt::join(line, " "), ended.err));
    EXPECT_EQ(ended.status, status);
    const Json document = ended.json();
    expect_common(ended, document);
    EXPECT_EQ(document["status"], word);
    EXPECT_THAT(document["message"].get<std::string>(), HasSubstr(message));
    EXPECT_EQ(ended.err, status == 2 ? fmt::format("onestep: {}\n", document["message"].get<std::string>()) : "");
    return document;
  }

  TemporaryFolder folder_;
  std::map<std::string, Members> tables_;

 private:
  static void hold(const Json& document, const Members& members) {
    for (const auto& [name, member] : members) {
      if (!document.contains(name)) {
        EXPECT_FALSE(member.always) << name << " is missing";
        continue;
      }
      EXPECT_TRUE(is_of_type(document[name], member.type)) << name << " is no " << member.type << ": " << document[name];
    }
  }
};

const char* const smallest_program =
    "NAME small\nROWS\n N cost\n E sum\nCOLUMNS\n x cost 1 sum 1\n y cost 2 sum 1\nRHS\n r sum 1\nQUADOBJ\n x x 1\n y y "
    "1\nENDATA\n";

TEST_F(JsonDocuments, OfAllVerbsAreAsDocumented) {
  EXPECT_GE(tables_.at("All verbs").size(), 10u);
  const std::string classes = samples("classes.csv"), quantity = samples("quantity.csv", true),
                    model = (folder_.path() / "model.json").string();
  const Json fit = expect_document({"fit", classes, "--save", model, "--test", classes}, {"Jobs", "fit"});
  for (const char* phase : {"reading", "fit", "standard_errors", "scores", "cross_validation"})
    EXPECT_TRUE(fit["times"].contains(phase)) << phase;
  expect_document({"fit", quantity, "--l2", "0"}, {"Jobs", "fit"});
  expect_document({"predict", model, classes}, {"predict"});
  expect_document({"tune", classes, "--folds", "2", "--test", classes, "--compare", "grid", "--save", model},
                  {"Jobs", "tune"});
  expect_document({"influence", quantity, "--folds", "2", "--verify", "2"}, {"Jobs", "influence"});
  expect_document({"clean", classes, "--flip", "0.1", "--test", classes}, {"Jobs", "clean"});
  expect_document({"qp", folder_.write("small.qps", smallest_program), "--solution", "--gradient-of", "objective"}, {"qp"});
  expect_document({"paper", "newton", "--quick"}, {"paper"});
}

TEST_F(JsonDocuments, OfFailuresSayHowAndWhy) {
  const std::string good = samples("good.csv"), none = (folder_.path() / "none").string();
  for (const char* verb : {"fit", "tune", "influence", "clean"}) {
    expect_failure({verb, none}, 2, "refused", "none");
    expect_failure({verb, good, "--l2", "-1"}, 2, "refused", "--l2");
    expect_failure({verb, good, "--memory", "0.001"}, 2, "refused",
                   "above the 0.001 GiB that are allowed; give --memory 0.");
  }
  expect_failure({"predict", none, good}, 2, "refused", "none");
  expect_failure({"qp", none}, 2, "refused", "none");
  expect_failure({"paper", "nonsense"}, 2, "refused", "there is no item nonsense");
  EXPECT_EQ(expect_failure({"fit", good, "--nonsense"}, 2, "refused", "there is no option --nonsense")["verb"], "fit");
  EXPECT_EQ(expect_failure({"ft", good}, 2, "refused", "did you mean fit?")["verb"], "");
  const std::string infeasible =
      "NAME no\nROWS\n N cost\n E one\n E two\nCOLUMNS\n x cost 1 one 1\n x two 1\nRHS\n r one 1 two 2\nENDATA\n";
  const Json qp = expect_failure({"qp", folder_.write("no.qps", infeasible)}, 1, "infeasible", "--solution --json");
  EXPECT_TRUE(qp["times"].contains("solve"));
  const Json fit = expect_failure({"fit", good, "--out", folder_.write("file", "")}, 2, "refused", "cannot be made");
  EXPECT_TRUE(fit["notes"].empty());
}

}  // namespace
}  // namespace onestep::test
