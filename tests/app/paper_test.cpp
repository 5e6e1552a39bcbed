// `onestep paper`: what it writes, that drawing needs nothing but results.json, and what it says when something is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "app/run_command.h"
#include "base/common.h"
#include "page/layout.h"
#include "paper/items.h"
#include "paper/page.h"
#include "paper/result.h"
#include "paper/run.h"

namespace onestep::test {
namespace {

using namespace onestep::app::page;
using namespace onestep::app::paper;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// Everything a program could take for its own language: HTML, gnuplot's strings and its notation for exponents, a shell.
const std::string odd_text = "'quoted' <script>alert('1')</script> & \"x_1^2\" {/Bold @} \\n `touch odd` $(touch odd) ‖x̄‖²";

Series curve(const std::string& label, const std::string& method, double rate, const std::string& mark = "line") {
  Series s{label, method, mark, {}, {}, {}, {}};
  for (int k = 0; k < 12; ++k) {
    s.x.push_back(k);
    s.y.push_back(std::pow(rate, k));
  }
  return s;
}

Panel with_axes(const std::string& x, bool log_x, const std::string& y, bool log_y) {
  Panel p;
  p.x = {x, log_x};
  p.y = {y, log_y};
  return p;
}

Panel panel(const std::string& title) {
  Panel p = with_axes("iteration", false, "error", true);
  p.title = title;
  p.notes = {"The first curve stops."};
  p.series = {curve("unrolled", "unrolled", 0.5), curve("implicit", "implicit", 0.3), curve("one step", "one_step", 0.3),
              curve("iterates", "iterates", 0.25, "dotted"), curve("a peer", "some_peer", 0.4, "points")};
  p.series[0].x.resize(6);
  p.series[0].y.resize(6);
  p.series[0].y[2] = nan;
  p.series[3].y[4] = 0;  // not on a logarithmic axis
  for (const double y : p.series[1].y) {
    p.series[1].low.push_back(0.8 * y);
    p.series[1].high.push_back(1.3 * y);
  }
  return p;
}

Results sample() {
  Item newton;
  newton.name = "newton";
  newton.title = "Convergence " + odd_text;
  newton.seconds = 1.5;
  newton.figures = {{"newton", "One panel " + odd_text, "Caption " + odd_text, {panel(odd_text)}},
                    {"four", "Four panels", "Four.", {panel("a"), panel("b"), panel("c"), panel("d")}}};
  newton.tables = {{"newton", "Table " + odd_text, odd_text, {"method", "time"}, {{"one step", "1.5"}, {odd_text, "2"}}}};
  newton.claims = {{"It converges " + odd_text, "order 2.00", "yes"},
                   {"It is free", "1.2 times", "no"},
                   {"It takes 1/κ steps", "a misprint", "differs"},
                   {"It is certified", "3 of 3", "yes", "ours"}};
  newton.data = {{"order", 2.0}, {"list", {1, 2, 3}}};
  Item bounds;
  bounds.name = "bounds";
  bounds.title = "Bounds";
  bounds.status = "cancelled";
  bounds.reason = "it was not begun";
  return {"0.1.0", "2026-01-01 12:00 UTC", {{"cpu", "a < b"}, {"cores", 2}}, {{"scale", "quick"}}, {newton, bounds}};
}

bool is_installed(const std::string& program) {
  std::istringstream folders(getenv("PATH") != nullptr ? getenv("PATH") : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (std::filesystem::exists(std::filesystem::path(folder) / program)) return true;
  return false;
}

#define NEEDS(program) \
  if (!is_installed(program)) GTEST_SKIP() << program << " is not installed"

class Paper : public ::testing::Test {
 protected:
  std::string save(const Results& results, const std::string& name = "saved.json") {
    return folder_.write(name, app::to_text(to_json(results)));
  }
  std::filesystem::path out() const { return folder_.path() / "out"; }
  Ended draw(const Results& results, std::vector<std::string> options = {}) {
    options.insert(options.begin(), {"paper", "--from", save(results), "--out", out().string()});
    return run_command(options);
  }
  std::string page() const { return contents_of(out() / "index.html"); }

  TemporaryFolder folder_;
};

// Whatever else the documents say about the two runs.
void expect_same_results(const std::string& one, const std::string& other) {
  EXPECT_EQ(to_json(from_json(Json::parse(one))), to_json(from_json(Json::parse(other))));
}

void expect_misuse(const Ended& ended, const std::string& said) {
  EXPECT_EQ(ended.status, 2) << said;
  EXPECT_TRUE(ended.out.empty() || ended.json()["status"] == "refused") << said;
  EXPECT_THAT(ended.err, HasSubstr(said));
  EXPECT_EQ(std::ranges::count(ended.err, '\n'), 1) << ended.err;
}

TEST(PaperResults, SurviveJsonWithNumbersThatAreNoneAsNull) {
  const Json document = to_json(sample());
  const Json again = Json::parse(app::to_text(document));
  EXPECT_EQ(again, document);
  EXPECT_EQ(to_json(from_json(again)), document);
  EXPECT_TRUE(again["items"][0]["figures"][0]["panels"][0]["series"][0]["y"][2].is_null());
  EXPECT_TRUE(std::isnan(from_json(again).items[0].figures[0].panels[0].series[0].y[2]));
}

TEST(PaperResults, ThatAreNotOursAreRefusedWithTheirPlace) {
  const auto expect_refused = [](const std::string& said, const std::function<void(Json&)>& spoil) {
    Json document = to_json(sample());
    spoil(document);
    try {
      from_json(document);
      FAIL() << said;
    } catch (const app::Misuse& wrong) { EXPECT_THAT(wrong.what(), HasSubstr(said)); }
  };
  expect_refused("the document is not an object", [](Json& d) { d = Json::array(); });
  expect_refused("items is missing", [](Json& d) { d.erase("items"); });
  expect_refused("items[0].figures[1].panels[2].x.log is missing",
                 [](Json& d) { d["items"][0]["figures"][1]["panels"][2]["x"].erase("log"); });
  expect_refused("items[0].claims[0].verdict is not text", [](Json& d) { d["items"][0]["claims"][0]["verdict"] = 1; });
  expect_refused("is none of yes, no and differs", [](Json& d) { d["items"][0]["claims"][0]["verdict"] = "maybe"; });
  expect_refused("is neither paper nor ours", [](Json& d) { d["items"][0]["claims"][0]["whose"] = "theirs"; });
  expect_refused("items[0].claims[0].holds is neither", [](Json& d) {
    d["items"][0]["claims"][0] = {{"says", "a"}, {"measured", "b"}, {"holds", 1}};
  });
  expect_refused("items[0].seconds is not a number", [](Json& d) { d["items"][0]["seconds"] = "1"; });
  expect_refused("machine is not an object", [](Json& d) { d["machine"] = 1; });
  expect_refused("items[0].tables is not a list", [](Json& d) { d["items"][0]["tables"] = Json::object(); });
  expect_refused("has other characters", [](Json& d) { d["items"][0]["figures"][0]["id"] = "../one"; });
  expect_refused("is there twice", [](Json& d) { d["items"][0]["figures"][0]["id"] = "four"; });
  expect_refused("as many x as y", [](Json& d) { d["items"][0]["figures"][0]["panels"][0]["series"][1]["x"].erase(0); });
  expect_refused("a band of another length",
                 [](Json& d) { d["items"][0]["figures"][0]["panels"][0]["series"][1]["low"].erase(0); });
  expect_refused("as many cells as columns", [](Json& d) { d["items"][0]["tables"][0]["rows"][0].erase(0); });
  expect_refused("none of done, failed and cancelled", [](Json& d) { d["items"][0]["status"] = "odd"; });
}

TEST(PaperResults, OfOlderFilesSayWhetherAClaimHolds) {
  Json document = to_json(sample());
  document["items"][0]["claims"] = {{{"says", "a"}, {"measured", "b"}, {"holds", true}},
                                    {{"says", "Ours: c"}, {"measured", "d"}, {"holds", false}}};
  const std::vector<Claim> claims = from_json(document).items[0].claims;
  ASSERT_EQ(claims.size(), 2u);
  EXPECT_EQ(claims[0].verdict, "yes");
  EXPECT_EQ(claims[0].whose, "paper");
  EXPECT_EQ(claims[1].verdict, "no");
  EXPECT_EQ(claims[1].whose, "ours");
}

void fill(const ItemOptions&, const Watch&, Item& item) { item.claims = {{"it works", "it does", "yes"}}; }
void fail(const ItemOptions&, const Watch&, Item& item) {
  item.claims = {{"it begins", "it did", "yes"}};
  throw std::runtime_error("the matrix is singular");
}
constexpr ItemKind kinds[] = {{"first", "First", fill}, {"second", "Second", fail}, {"third", "Third", fill}};

TEST(PaperRun, KeepsWhatAFailedItemHadAndRunsTheNext) {
  Results results;
  int saved = 0;
  run_items(kinds, {}, {[](const std::string&) {}, [] { return false; }}, results, [&] { ++saved; });
  ASSERT_EQ(results.items.size(), 3u);
  EXPECT_EQ(saved, 3);
  EXPECT_EQ(results.items[0].status, "done");
  EXPECT_EQ(results.items[1].status, "failed");
  EXPECT_EQ(results.items[1].reason, "the matrix is singular");
  EXPECT_EQ(results.items[1].claims.size(), 1u);
  EXPECT_EQ(results.items[2].status, "done");
  EXPECT_THAT(page_of(results, {}), HasSubstr("Failed.</span> the matrix is singular"));
}

TEST(PaperRun, KeepsFinishedItemsWhenItIsCancelled) {
  Results results;
  bool stop = false;
  run_items(kinds, {}, {[](const std::string&) {}, [&] { return stop; }}, results, [&] { stop = true; });
  ASSERT_EQ(results.items.size(), 3u);
  EXPECT_EQ(results.items[0].status, "done");
  EXPECT_EQ(results.items[1].status, "cancelled");
  EXPECT_EQ(results.items[2].status, "cancelled");
  EXPECT_THAT(page_of(results, {}), HasSubstr("it works"));
}

TEST(PaperLayout, LabelsOfCurvesThatEndTogetherDoNotOverlap) {
  for (const double rate : {0.5, 0.99, 1.0}) {
    Panel p = with_axes("k", false, "error", true);
    const std::vector<std::string> names = {"one step", "implicit, on the gradient", "unrolled", "K steps", "a bound",
                                            "iterates"};
    for (const std::string& name : names) p.series.push_back(curve(name, name, rate));
    p.series.back().x.pop_back();
    p.series.back().y.pop_back();
    const FigureLayout layout = lay_out(p, {480, 345, false});
    std::vector<Box> boxes;
    for (const Text& t : layout.panels[0].texts) {
      const double width = t.size * width_of(t.text);
      const double left = t.at.x - (t.align == Align::left ? 0 : t.align == Align::right ? width : width / 2);
      boxes.push_back({left, t.at.y - 0.5 * t.size, left + width, t.at.y + 0.5 * t.size});
      if (t.enhanced) boxes.pop_back();  // braces are not shown
    }
    EXPECT_GE(boxes.size(), names.size() + 2);
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      EXPECT_GE(boxes[i].left, 0);
      EXPECT_LE(boxes[i].right, layout.width);
      EXPECT_GE(boxes[i].bottom, 0);
      EXPECT_LE(boxes[i].top, layout.height);
      for (std::size_t j = 0; j < i; ++j)
        EXPECT_TRUE(boxes[i].right <= boxes[j].left || boxes[j].right <= boxes[i].left || boxes[i].top <= boxes[j].bottom ||
                    boxes[j].top <= boxes[i].bottom)
            << rate << ": texts " << i << " and " << j;
    }
  }
}

TEST(PaperLayout, TicksArePowersOfTenOrRoundNumbers) {
  const auto ticks = [](bool log, double low, double high) {
    Panel p = with_axes("x", log, "y", false);
    p.series = {{"", "none", "line", {low, high}, {0, 1}, {}, {}}};
    const FigureLayout layout = lay_out(p, {480, 345, false});
    std::vector<std::string> texts;
    for (const Tick& tick : layout.panels[0].x.ticks) texts.push_back(tick.text);
    return texts;
  };
  EXPECT_THAT(ticks(true, 1, 1000), ElementsAre("10^{0}", "10^{1}", "10^{2}", "10^{3}"));
  EXPECT_THAT(ticks(true, 1e-16, 1), ElementsAre("10^{-15}", "10^{-12}", "10^{-9}", "10^{-6}", "10^{-3}", "10^{0}"));
  EXPECT_THAT(ticks(true, 2, 8), ElementsAre("2", "5"));
  EXPECT_THAT(ticks(false, 0, 10), ElementsAre("0", "2", "4", "6", "8", "10"));
  EXPECT_THAT(ticks(false, -1, 1), ElementsAre("-1", "-0.5", "0", "0.5", "1"));
}

TEST(PaperLayout, ACurveOfManyPointsFillsItsPanel) {
  Panel p = with_axes("K", true, "error", true);
  p.series = {curve("one step", "one_step", 0.9)};
  for (int k = 12; k < 100; ++k) {
    p.series[0].x.push_back(k);
    p.series[0].y.push_back(std::pow(0.9, k));
  }
  p.series[0].x.front() = 0.5;
  const FigureLayout layout = lay_out(p, {480, 345, false});
  EXPECT_NEAR(layout.panels[0].x.low, 0.5, 1e-9);
  EXPECT_NEAR(layout.panels[0].x.high, 99, 1e-9);
}

TEST_F(Paper, DrawsASavedResultWithoutComputing) {
  NEEDS("gnuplot");
  const Ended ended = draw(sample());
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.err, "");
  EXPECT_THAT(ended.out, HasSubstr("newton  yes      It converges"));
  EXPECT_THAT(ended.out, HasSubstr("newton  NO       It is free\n                 1.2 times\n"));
  EXPECT_THAT(ended.out, HasSubstr("newton  differs  It takes 1/κ steps\n"));
  EXPECT_THAT(ended.out, HasSubstr("newton  yes      ours: It is certified\n"));
  EXPECT_THAT(ended.out,
              HasSubstr("\n1 of the paper's 3 claims hold, 1 differs for the reason given, 1 does not; 1 of our 1 "
                        "claims hold\npage: "));
  EXPECT_THAT(ended.out, HasSubstr("bounds  cancelled: it was not begun\n"));
  EXPECT_THAT(ended.out, HasSubstr("\npage: " + (out() / "index.html").string() + "\n"));
  expect_same_results(contents_of(out() / "results.json"), contents_of(folder_.path() / "saved.json"));
  std::set<std::string> files;
  for (const auto& file : std::filesystem::directory_iterator(out())) files.insert(file.path().filename().string());
  EXPECT_THAT(files, ElementsAre("four.png", "four.svg", "index.html", "newton.png", "newton.svg", "results.json"));
  EXPECT_EQ(contents_of(out() / "newton.png").substr(1, 3), "PNG");
  EXPECT_THAT(contents_of(out() / "four.svg"), HasSubstr("</svg>"));
  EXPECT_THAT(page(), HasSubstr("The first curve stops."));
  EXPECT_THAT(page(), HasSubstr("2026-01-01 12:00 UTC"));
}

TEST_F(Paper, TakesNothingInTheResultsForALanguage) {
  NEEDS("gnuplot");
  EXPECT_EQ(draw(sample()).status, 0);
  EXPECT_THAT(page(), Not(HasSubstr("<script")));
  EXPECT_THAT(page(), HasSubstr("Caption &#39;quoted&#39; &lt;script&gt;alert(&#39;1&#39;)"));
  EXPECT_THAT(page(), HasSubstr("a &lt; b"));
  const std::string svg = contents_of(out() / "newton.svg");
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  for (const char* part : {"x_1^2", "{/Bold @}", "\\n", "`touch odd`", "$(touch", "‖x̄‖²"}) EXPECT_THAT(svg, HasSubstr(part));
  EXPECT_FALSE(std::filesystem::exists("odd"));
}

// What stands between quotation marks behind each `before`.
std::vector<std::string> quoted_after(const std::string& text, const std::string& before) {
  std::vector<std::string> all;
  for (std::size_t at = text.find(before); at != std::string::npos; at = text.find(before, at + 1)) {
    const std::size_t begin = at + before.size() + 1;
    all.push_back(text.substr(begin, text.find(text[begin - 1], begin) - begin));
  }
  return all;
}

TEST_F(Paper, PanelsOnThePageShareNeitherIdsNorColoursOfOneScheme) {
  NEEDS("gnuplot");
  EXPECT_EQ(draw(sample()).status, 0);
  const std::string text = page();
  std::set<std::string> ids;
  for (const std::string& id : quoted_after(text, " id=")) EXPECT_TRUE(ids.insert(id).second) << id;
  for (const std::string& link : quoted_after(text, "href=")) {
    EXPECT_TRUE(!link.starts_with('#') || ids.contains(link.substr(1))) << link;
  }
  EXPECT_FALSE(ids.empty());
  EXPECT_THAT(text, Not(HasSubstr("rgb(")));
  EXPECT_THAT(text, HasSubstr("stroke='var(--one_step)'"));
}

TEST_F(Paper, AFailedItemOnThePageIsAFailure) {
  Results results = sample();
  results.items[1].status = "failed";
  results.items[1].reason = "not enough memory";
  const Ended ended = draw(results, {"bounds"});
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.out, HasSubstr("bounds  failed: not enough memory\n"));
  EXPECT_THAT(page(), Not(HasSubstr("newton")));
}

TEST(PaperPage, WritesPowersOfTenAsPeopleDo) {
  Results results = sample();
  results.items[0].claims = {{"below 1e-06", "2.5e-13 and 3e+20, not 0x1e5, v1.2e3b, 1e or e-5; at 1.5e-3.", "yes"}};
  const std::string text = page_of(results, {});
  EXPECT_THAT(text, HasSubstr("below <span class=\"whole\">10<sup>−6</sup></span>"));
  EXPECT_THAT(text, HasSubstr("<span class=\"whole\">2.5\u202f·\u202f10<sup>−13</sup></span> and <span "
                              "class=\"whole\">3\u202f·\u202f10<sup>20</sup></span>, not 0x1e5, v1.2e3b, 1e or e-5; at"));
  EXPECT_THAT(text, HasSubstr("10<sup>−3</sup></span>."));
}

TEST(PaperPage, WritesFormulasAsPeopleDo) {
  Results results = sample();
  results.items[0].claims = {{"x_{k-1} is within ρ^K + L_J of x̄_k", "not one_step, _k, a^ or {b}; 2^10 and x_<", "yes"}};
  const std::string text = page_of(results, {});
  EXPECT_THAT(text, HasSubstr("x<sub>k-1</sub> is within ρ<sup>K</sup> + L<sub>J</sub> of x̄<sub>k</sub><"));
  EXPECT_THAT(text, HasSubstr("not one_step, _k, a^ or {b}; 2^10 and x_&lt;<"));
}

TEST(PaperPage, CountsTheClaimsOfThePaperAndOursWithTheirThreeVerdicts) {
  Results results = sample();
  results.items[0].claims = {{"a", "b", "yes"}, {"c", "d", "differs"}, {"e", "f", "differs"}};
  results.items[1].claims = {{"g", "h", "yes"}};
  EXPECT_EQ(tally_of(results), "2 of the paper's 4 claims hold, 2 differ for the reason given");
  results.items[1].claims.push_back({"i", "j", "no", "ours"});
  const std::string text = page_of(results, {});
  EXPECT_THAT(text,
              HasSubstr("<b>2 of the paper&#39;s 4 claims hold, 2 differ for the reason given; 0 of our 1 claims hold, 1 "
                        "does not.</b>"));
  EXPECT_THAT(text, HasSubstr("<td class=\"yes\">✓ yes</td>"));
  EXPECT_THAT(text, HasSubstr("<td class=\"differs\">≠ differs</td>"));
  EXPECT_THAT(text, HasSubstr("<td class=\"no\">✗ no</td>"));
  EXPECT_THAT(text, HasSubstr("<span class=\"soft\">ours:</span> i"));
}

// Changes the environment for what is started while it lives.
class Path {
 public:
  explicit Path(const std::string& path) : before_(getenv("PATH")) { setenv("PATH", path.c_str(), 1); }
  ~Path() { setenv("PATH", before_.c_str(), 1); }

 private:
  std::string before_;
};

TEST_F(Paper, WithoutGnuplotThePageHasTheRestAndSaysWhatIsMissing) {
  const Path nowhere(folder_.path().string());
  const Ended ended = draw(sample());
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.err, HasSubstr("apt-get install gnuplot-nox\n"));
  EXPECT_THAT(page(), HasSubstr("apt-get install gnuplot-nox"));
  EXPECT_THAT(page(), HasSubstr("id=\"table-newton\""));
  EXPECT_THAT(page(), HasSubstr("Caption "));
  EXPECT_THAT(page(), Not(HasSubstr("<svg")));
}

TEST_F(Paper, AFullDiskLeavesThePageAsItWas) {
  std::filesystem::create_directory(out());
  std::ofstream(out() / "index.html") << "the old page";
  Results results = sample();
  results.items[0].figures[0].caption = std::string(20000, 'x');
  const std::string saved = save(results);
  // A limit on the size of files stands for the full disk: writing fails with an error in the same way.
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 8192;
  setrlimit(RLIMIT_FSIZE, &small);
  const RunningCommand command({"paper", "--from", saved, "--out", out().string()});
  setrlimit(RLIMIT_FSIZE, &before);
  const Ended ended = command.wait();
  signal(SIGXFSZ, SIG_DFL);
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, HasSubstr("could not be written\n"));
  EXPECT_EQ(page(), "the old page");
  for (const auto& file : std::filesystem::directory_iterator(out())) EXPECT_NE(file.path().extension(), ".part");
}

TEST_F(Paper, BadInputIsOneLine) {
  expect_misuse(run_command({"paper", "nonsense", "--json"}), "onestep: there is no item nonsense; there are newton, ");
  expect_misuse(run_command({"paper", "--out", folder_.write("a_file", "")}), "a_file: the folder cannot be made");
  expect_misuse(run_command({"paper", "--json", "--cpusmall", (folder_.path() / "none").string()}), "none");
  expect_misuse(run_command({"paper", "--json", "--cpusmall", folder_.write("cpusmall", "90 1:a\n")}), "cpusmall:1: ");
  expect_misuse(run_command({"paper", "--json", "--from", (folder_.path() / "none").string()}), "the file cannot be read");
  expect_misuse(run_command({"paper", "--json", "--from", folder_.path().string()}), "the file cannot be read");
  expect_misuse(run_command({"paper", "--json", "--from", folder_.write("text", "no json")}), "text: ");
  expect_misuse(run_command({"paper", "--json", "--from", folder_.write("other", "{}")}), "version is missing");
  expect_misuse(run_command({"paper", "ridge", "--json", "--from", save(sample())}), "it has no item ridge");
  expect_misuse(run_command({"paper", "--quick", "--full"}), "--quick");
  expect_misuse(run_command({"paper", "--quick", "--from", save(sample())}), "--from");
}

TEST_F(Paper, ItsHelpSaysHowLongItTakes) {
  const Ended help = run_command({"paper", "--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* time : {"5 s (usual: 1 to 3 min)", "5 to 10 min on two cores"}) EXPECT_THAT(help.out, HasSubstr(time));
}

Json peer_row(const char* problem, double parameters, const char* contender, const char* method, Json gradient) {
  return {{"suite", "peers"},       {"problem", problem}, {"size", {50, 5}}, {"parameters", parameters},
          {"contender", contender}, {"method", method},   {"solve", 1e-3},   {"gradient", std::move(gradient)},
          {"compile", 1.0},         {"error", 1e-12},     {"lines", 12},     {"version", "1.2.3"}};
}

TEST_F(Paper, DrawsTheBestMethodOfEachPeerBesideOurs) {
  const Json rows = {
      peer_row("logistic", 300, "jax", "one-step", 2e-3),     peer_row("logistic", 300, "jax", "implicit", 1e-3),
      peer_row("logistic", 60, "jax", "implicit", 1e-4),      peer_row("logistic", 300, "piqp", "solve only", nullptr),
      peer_row("logistic", 300, "onestep", "one-step", 1e-5), peer_row("qp", 300, "proxqp", "implicit", 1e-3),
      {{"suite", "solve"}, {"row", "newton solve"}}};
  const Ended computed = run_command({"paper", "logistic", "--quick", "--json", "--out", out().string(), "--peers",
                                      folder_.write("peers.json", rows.dump())});
  ASSERT_EQ(computed.status, 0) << computed.err;
  const Results results = from_json(Json::parse(computed.out));
  const Figure& figure = results.items[0].figures[0];
  std::vector<std::string> labels;
  for (const Series& series : figure.panels[0].series) labels.push_back(series.label);
  EXPECT_THAT(labels, ElementsAre("None", "Autodiff", "Implicit", "One step", "jax"));
  const Series& jax = figure.panels[0].series.back();
  EXPECT_THAT(jax.x, ElementsAre(60, 300));
  EXPECT_THAT(jax.y, ElementsAre(1e-4, 1e-3));
  EXPECT_THAT(figure.caption, HasSubstr("./run bench peers"));
  EXPECT_THAT(figure.caption, HasSubstr("jax 1.2.3 (implicit)."));
  EXPECT_EQ(results.items[0].data["peers"].size(), 1);
  const Ended drawn = run_command({"paper", "--from", folder_.write("computed.json", computed.out), "--json"});
  expect_same_results(drawn.out, computed.out);
}

TEST_F(Paper, ABadFileOfPeersIsOneLineThatNamesItAndItsPlace) {
  const auto refused = [&](const std::string& name, const std::string& text, const std::string& message) {
    const std::string file = folder_.write(name, text);
    const Ended ended = run_command({"paper", "qp", "--quick", "--json", "--peers", file});
    expect_misuse(ended, message);
    EXPECT_THAT(ended.err, HasSubstr(file));
  };
  refused("text", "no json", "parse error");
  refused("object", "{}", "it is not a list of rows");
  refused("numbers", "[1]", "row 1 is not an object");
  refused("empty", "[]", "no time of a peer; ./run bench peers --json makes such a file");
  const Json good = peer_row("qp", 300, "proxqp", "implicit", 1e-3);
  for (const char* key : {"suite", "problem", "contender", "method", "version", "parameters", "gradient"}) {
    Json row = good;
    row.erase(key);
    refused("missing", Json::array({good, row}).dump(), std::string("row 2.") + key + " is missing");
    row[key] = Json::array();
    refused("other", Json::array({good, row}).dump(), std::string("row 2.") + key + " is not");
  }
  Json negative = good;
  negative["gradient"] = -1;
  refused("negative", Json::array({negative}).dump(), "row 1.gradient is not a positive number");
  expect_misuse(run_command({"paper", "qp", "--json", "--peers", (folder_.path() / "none").string()}),
                "the file cannot be read");
  expect_misuse(run_command({"paper", "--from", save(sample()), "--peers", "x"}), "--peers");
}

TEST_F(Paper, DrawsAgainWhatItComputed) {
  const Ended computed = run_command({"paper", "--quick", "--json"});
  EXPECT_EQ(computed.status, 0);
  const Ended drawn = run_command({"paper", "--from", folder_.write("computed.json", computed.out), "--json"});
  EXPECT_EQ(drawn.status, 0) << drawn.err;
  expect_same_results(drawn.out, computed.out);
}

TEST_F(Paper, WithJsonThereIsOneDocumentAndNoFolder) {
  const auto usual = std::filesystem::current_path() / "paper";
  const bool was_there = std::filesystem::exists(usual);
  const Ended ended = run_command({"paper", "--json", "--from", save(sample())});
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.err, "");
  expect_same_results(ended.out, contents_of(folder_.path() / "saved.json"));
  EXPECT_EQ(std::filesystem::exists(usual), was_there);
}

TEST_F(Paper, AnInterruptKeepsTheFinishedItems) {
  const RunningCommand command({"paper", "newton", "ridge", "--out", out().string()});
  const auto saved = out() / "index.html";
  for (int i = 0; i < 3000 && !std::filesystem::exists(saved); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  kill(command.pid(), SIGINT);
  const Ended ended = command.wait();
  EXPECT_EQ(ended.status, 128 + SIGINT);
  EXPECT_THAT(ended.out, HasSubstr("ridge   cancelled: it was stopped before its end\n"));
  const Results results = from_json(Json::parse(contents_of(out() / "results.json")));
  ASSERT_EQ(results.items.size(), 2u);
  EXPECT_EQ(results.items[0].status, "done");
  EXPECT_FALSE(results.items[0].figures.empty());
  EXPECT_EQ(results.items[1].status, "cancelled");
  EXPECT_THAT(page(), HasSubstr("Not finished.</span> it was stopped before its end"));
}

// The page in frames of two widths; the script of the outer document writes down what a reader would notice.
constexpr const char* frames = R"(<!DOCTYPE html><body><pre id="report"></pre><script>
const report = document.getElementById('report');
for (const width of [400, 1200]) {
  const frame = document.createElement('iframe');
  frame.style.cssText = `width: ${width}px; height: 900px; border: 0`;
  frame.src = 'out/index.html';
  frame.onload = () => {
    const page = frame.contentDocument, root = page.documentElement;
    const drawn = [...page.querySelectorAll('figure svg')].filter(svg => {
      const box = svg.getBoundingClientRect();
      return box.width > 300 && box.height > 200 && svg.querySelectorAll('text').length > 5 &&
             svg.querySelectorAll("[id*='gnuplot_plot'] path, [id*='gnuplot_plot'] use").length > 5;
    });
    const letters = Math.min(...[...page.querySelectorAll('figure svg text')].map(text =>
      parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a));
    report.textContent += `[${width}: ${page.querySelectorAll('figure').length} figures, ${drawn.length} panels, ` +
      `scrolls ${root.scrollWidth > root.clientWidth}, readable ${letters > 9}]`;
  };
  document.body.append(frame);
}
</script></body>)";

TEST_F(Paper, InABrowserThePageFitsANarrowAndAWideWindow) {
  NEEDS("gnuplot");
  NEEDS("chromium");
  EXPECT_EQ(draw(sample()).status, 0);
  const std::string file = folder_.write("frames.html", frames), log = (folder_.path() / "log").string();
  const std::string command =
      "chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --allow-file-access-from-files "
      "--enable-logging=stderr --window-size=1300,1900 --virtual-time-budget=10000 --user-data-dir='" +
      (folder_.path() / "profile").string() + "' --dump-dom 'file://" + file + "' 2>'" + log + "'";
  std::string dom;
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;) dom += static_cast<char>(c);
  EXPECT_EQ(pclose(pipe), 0) << contents_of(log);
  EXPECT_THAT(dom, HasSubstr("[400: 2 figures, 5 panels, scrolls false, readable true]"));
  EXPECT_THAT(dom, HasSubstr("[1200: 2 figures, 5 panels, scrolls false, readable true]"));
  EXPECT_THAT(contents_of(log), Not(HasSubstr("CONSOLE")));
}

}  // namespace
}  // namespace onestep::test
