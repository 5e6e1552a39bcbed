// The pages that the jobs write with --out: what stands on them, that nothing in the data becomes HTML, and that pictures
// can be read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <zlib.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "app/run_command.h"
#include "base/common.h"
#include "jobs/page.h"
#include "jobs/report.h"
#include "page/html.h"
#include "page/layout.h"
#include "page/png.h"
#include "page/text.h"

namespace onestep::test {
namespace {

using namespace onestep::app;
using ::testing::HasSubstr;
using ::testing::Not;

unsigned big_endian(const std::string& bytes, std::size_t at) {
  unsigned value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8U | static_cast<unsigned char>(bytes.at(at + i));
  return value;
}

// The pixels of a grey picture of 8 bits; every chunk has to have its checksum.
std::vector<std::uint8_t> decoded(const std::string& png, std::size_t side) {
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  std::string packed, last;
  for (std::size_t at = 8; at < png.size();) {
    const std::size_t length = big_endian(png, at);
    const std::string body = png.substr(at + 4, 4 + length);
    EXPECT_EQ(big_endian(png, at + 8 + length),
              crc32_z(0, reinterpret_cast<const unsigned char*>(body.data()), body.size()));
    last = body.substr(0, 4);
    if (last == "IHDR") {
      EXPECT_EQ(big_endian(body, 4), side);
      EXPECT_EQ(big_endian(body, 8), side);
      EXPECT_EQ(body.substr(12), std::string({8, 0, 0, 0, 0}));
    }
    if (last == "IDAT") packed += body.substr(4);
    at += 12 + length;
  }
  EXPECT_EQ(last, "IEND");
  std::vector<std::uint8_t> rows(side * (side + 1)), pixels;
  uLongf size = rows.size();
  EXPECT_EQ(uncompress(rows.data(), &size, reinterpret_cast<const Bytef*>(packed.data()), packed.size()), Z_OK);
  EXPECT_EQ(size, rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (i % (side + 1) == 0)
      EXPECT_EQ(rows[i], 0) << "a filter";
    else
      pixels.push_back(rows[i]);
  return pixels;
}

TEST(Png, IsReadAsItWasWritten) {
  for (const std::size_t side : {1U, 2U, 28U}) {
    std::vector<std::uint8_t> pixels(side * side);
    for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(37 * i);
    EXPECT_EQ(decoded(page::png_of(pixels), side), pixels);
  }
  EXPECT_THROW(page::png_of(std::vector<std::uint8_t>(6)), std::invalid_argument);
}

TEST(Png, Base64IsThatOfRfc4648) {
  for (const auto& [bytes, text] :
       {std::pair{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foobar", "Zm9vYmFy"}})
    EXPECT_EQ(page::base64(bytes), text);
}

TEST(PageText, ColumnsAreAlignedByLettersNotBytes) {
  EXPECT_EQ(page::columns_of("‖x̄‖²"), 4U);
  EXPECT_EQ(page::text_of(
                {.id = "", .title = "T", .caption = "", .columns = {"name", "n"}, .rows = {{"é", "10"}, {"plain", "-2"}}}),
            "T\n  name    n\n  é      10\n  plain  -2\n");
}

TEST(PageLayout, RowsAreNamedFromTheTopAndNeedTheirHeight) {
  page::Panel panel;
  for (int i = 1; i <= 30; ++i) panel.y.names.push_back("feature_" + std::to_string(i));
  panel.series = {{.label = "", .method = "one_step", .mark = "bars", .x = {1, 1, 1, 1, 1, 1}, .y = {1, 2, 3, 4, 5, 6}}};
  panel.series[0].low = std::vector<double>(6, -3);
  panel.series[0].high = std::vector<double>(6, 4);
  const page::FigureLayout layout = page::lay_out(panel, {480, 345, false});
  EXPECT_GT(layout.height, 30 * 13);
  const page::PanelLayout& laid = layout.panels[0];
  EXPECT_GT(laid.y.place(1), laid.y.place(2));
  EXPECT_LE(laid.x.low, -3);
  EXPECT_GE(laid.x.high, 4);
  EXPECT_EQ(page::visible_runs(panel.series[0], laid)[0].size(), 6U) << "points above each other are all drawn";
}

class JobPages : public ::testing::Test {
 protected:
  std::filesystem::path out() const { return folder_.path() / "out"; }
  std::string html() const { return contents_of(out() / "index.html"); }
  TemporaryFolder folder_;
};

void expect_pages(const std::filesystem::path& out, const std::vector<std::string>& arguments,
                  const std::vector<std::string>& figures) {
  const Ended ended = run_command(arguments);
  const std::string& verb = arguments[0];
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("\npage: " + (out / "index.html").string() + "\n"));
  const std::string page = contents_of(out / "index.html");
  const Json document = Json::parse(contents_of(out / (verb + ".json")));
  EXPECT_THAT(page, HasSubstr("onestep " + verb + " --demo"));
  EXPECT_THAT(page, HasSubstr("Seed 7;"));
  EXPECT_THAT(page, HasSubstr("<p class=\"answer\">"));
  EXPECT_THAT(page, HasSubstr("How accurate it is"));
  EXPECT_THAT(page, HasSubstr("href=\"" + verb + ".json\""));
  EXPECT_THAT(page, HasSubstr("<dt>cpu</dt>"));
  for (const char* outside : {"http-equiv", "src=\"http", "href=\"http", "@import"})
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  std::vector<std::string> ids;
  for (const Json& figure : document["figures"]) {
    ids.push_back(figure["id"]);
    EXPECT_THAT(page, HasSubstr("id=\"figure-" + ids.back() + "\""));
    EXPECT_GT(std::filesystem::file_size(out / (ids.back() + ".svg")), 1000U);
    EXPECT_EQ(contents_of(out / (ids.back() + ".png")).substr(1, 3), "PNG");
    for (const Json& panel : figure["panels"])
      for (const Json& series : panel["series"]) EXPECT_EQ(series["x"].size(), series["y"].size());
  }
  EXPECT_EQ(ids, figures) << verb;
}

TEST_F(JobPages, EveryVerbHasOneWithItsFigures) {
  if (system("command -v gnuplot >/dev/null") != 0) GTEST_SKIP() << "gnuplot is not installed";
  const std::string to = out().string();
  expect_pages(out(), {"fit", "--demo", "--seed", "7", "--out", to}, {"coefficients", "calibration"});
  expect_pages(out(), {"influence", "--demo", "--verify", "5", "--seed", "7", "--out", to}, {"own_losses", "verify"});
  expect_pages(out(), {"tune", "--demo", "--compare", "grid", "--seed", "7", "--out", to}, {"curve", "path"});
  expect_pages(out(), {"tune", "--demo", "--hyper", "l2-per-feature", "--iterations", "3", "--seed", "7", "--out", to},
               {"hyperparameters", "path"});
  expect_pages(out(), {"clean", "--demo", "--flip", "0.3", "--seed", "7", "--out", to}, {"found", "quality"});
}

TEST_F(JobPages, WithJsonStandardOutputIsTheDocumentAlone) {
  const Ended ended = run_command({"influence", "--demo", "--json", "--out", out().string()});
  EXPECT_EQ(ended.out, contents_of(out() / "influence.json"));
  const Json document = ended.json();
  EXPECT_EQ(document["figures"][0]["panels"][0]["series"][0]["x"].size(), document["own_loss"].size());
}

TEST_F(JobPages, NamesInFilesAreNoHtml) {
  const std::string file =
      folder_.write("a.csv", "<script>alert(1)</script>,\"x'\"\"&\",y\n1,2,0\n2,1,1\n3,5,0\n4,2,1\n2,2,0\n1,1,1\n");
  ASSERT_EQ(run_command({"fit", file, "--out", out().string()}).status, 0);
  EXPECT_THAT(html(), Not(HasSubstr("<script")));
  EXPECT_THAT(html(), HasSubstr("&lt;script&gt;"));
}

TEST_F(JobPages, NamesAreNoFormulas) {
  std::string text = "pixel_2_3,1e-5,x_k,p^2,y\n";
  for (int i = 0; i < 30; ++i)
    text += std::to_string(i % 7) + "," + std::to_string(i % 5) + "," + std::to_string(i % 3) + "," + std::to_string(i % 4) +
            (i % 2 == 0 ? ",a_1\n" : ",b_1\n");
  ASSERT_EQ(run_command({"fit", folder_.write("a.csv", text), "--out", out().string()}).status, 0);
  for (const char* name : {">pixel_2_3<", ">1e-5<", ">x_k<", ">p^2<", "found a_1"}) EXPECT_THAT(html(), HasSubstr(name));
}

TEST(PageText, LongNamesAreCutInTheMiddle) {
  EXPECT_EQ(page::shortened("length of é, first 2019", 11), "lengt… 2019");
  EXPECT_EQ(page::shortened("length é", 8), "length é");
}

TEST_F(JobPages, CoefficientsAreComparedByStandardDeviationsInTheOrderOfTheTable) {
  std::string text = "small,large,y\n";
  for (int i = 0; i < 60; ++i) {
    const double a = std::sin(i), b = std::cos(3.0 * i);
    text += std::to_string(a) + "," + std::to_string(1e6 * b) + "," +
            (a + 3 * b + 3 * std::sin(7.0 * i * i) > 0 ? "u" : "v") + "\n";
  }
  ASSERT_EQ(run_command({"fit", folder_.write("a.csv", text), "--out", out().string()}).status, 0);
  const Json panel = Json::parse(contents_of(out() / "fit.json"))["figures"][0]["panels"][0];
  EXPECT_EQ(panel["y"]["names"][0], "large");
  EXPECT_GT(std::fabs(panel["series"][1]["x"][0].get<double>()), 0.5) << "its coefficient is about 1e-6";
}

TEST_F(JobPages, AConfusionStaysATable) {
  std::string text = "a,y\n";
  for (int i = 0; i < 200; ++i)
    text += std::to_string(i % 10 + 0.1 * std::sin(i)) + ",class " + std::to_string(i % 10) + "\n";
  ASSERT_EQ(run_command({"fit", folder_.write("a.csv", text), "--out", out().string()}).status, 0);
  EXPECT_THAT(html(), HasSubstr("<div class=\"table slim\" id=\"table-confusion\">"));
}

TEST_F(JobPages, WithoutGnuplotThePageHasTheRestAndSaysWhatIsMissing) {
  const std::string before = getenv("PATH");
  setenv("PATH", folder_.path().c_str(), 1);
  const Ended ended = run_command({"tune", "--demo", "--out", out().string()});
  setenv("PATH", before.c_str(), 1);
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.err, HasSubstr("apt-get install gnuplot-nox\n"));
  EXPECT_THAT(html(), HasSubstr("Figures are missing:"));
  EXPECT_THAT(html(), HasSubstr("id=\"table-scores\""));
  EXPECT_THAT(html(), Not(HasSubstr("<svg")));
}

TEST(JobPictures, AreThePixelsAsTheyWereWhateverTheirScaleWas) {
  jobs::JobData job;
  job.image_side = 2;
  job.train.rows = {11, 12};
  job.train.A = Array({2, 5}, {0, 0.5, 1, 0.25, 1, 0, 0, 0, 1, 1});
  EXPECT_EQ(jobs::picture_of(job, job.train, 0).pixels, (std::vector<std::uint8_t>{0, 128, 255, 64}));
  EXPECT_EQ(jobs::picture_of(job, job.train, 0).lines, std::vector<std::string>{"sample 11"});
  job.scaling = Scaling{Array({5}, {100, 100, 100, 100, 0}), Array({5}, {10, 50, 100, 4, 1})};
  EXPECT_EQ(jobs::picture_of(job, job.train, 0).pixels, (std::vector<std::uint8_t>{100, 125, 200, 101}));
}

TEST(JobPictures, StandOnThePageAsPng) {
  jobs::Report report{.title = "T <b>", .asked = "A <b>", .sentence = "S <b>"};
  const std::vector<std::uint8_t> pixels{0, 10, 200, 255};
  report.galleries = {{"suspects", "Suspects", "", {{pixels, {"<i>", "boot"}, true}}}};
  jobs::JobOptions options;
  options.command = "onestep clean '<u>'";
  const std::string page = jobs::page_of(options, report, {});
  for (const char* tag : {"<b>", "<i>", "<u>"}) EXPECT_THAT(page, Not(HasSubstr(tag)));
  EXPECT_THAT(page, HasSubstr("<li class=\"marked\"><img alt=\"&lt;i&gt;, boot\" src=\"data:image/png;base64," +
                              page::base64(page::png_of(pixels)) + "\">"));
}

}  // namespace
}  // namespace onestep::test
