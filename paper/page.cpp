// Puts claims, figures and tables together as one HTML page.
#include "paper/page.h"

#include <fmt/format.h>

namespace onestep::app::paper {

namespace {

using page::escaped, page::prose;

constexpr const char* title = "One-step differentiation, reproduced";

const char* mark_of(const Claim& claim) { return claim.verdict == "yes" ? "✓" : claim.verdict == "no" ? "✗" : "≠"; }

std::string words_of(const Claim& claim) {
  return (claim.whose == "ours" ? "<span class=\"soft\">ours:</span> " : "") + prose(claim.says);
}

std::string claims_table(const Results& results) {
  std::string rows;
  for (const Item& item : results.items)
    for (const Claim& claim : item.claims)
      rows += fmt::format(
          "<tr><td><a href=\"#item-{0}\">{0}</a></td><td>{1}</td><td>{2}</td><td class=\"{3}\">{4} {3}</td></tr>\n",
          escaped(item.name), words_of(claim), prose(claim.measured), claim.verdict, mark_of(claim));
  if (rows.empty()) return "";
  return "<div class=\"wide\"><table class=\"stacked\">\n<thead><tr><th>item</th><th>what is said</th><th>what was "
         "measured</th>"
         "<th>holds</th></tr></thead>\n<tbody>\n" +
         rows + "</tbody>\n</table></div>\n";
}

std::string show(const Item& item, const page::Pictures& pictures) {
  std::string text = fmt::format("<section id=\"item-{}\">\n<h2>{}</h2>\n", escaped(item.name), escaped(item.title));
  if (item.status != "done")
    text += fmt::format("<p class=\"box\"><span class=\"state\">{}.</span> {}</p>\n",
                        item.status == "failed" ? "Failed" : "Not finished", escaped(item.reason));
  if (!item.claims.empty()) {
    text += "<ul class=\"claims\">\n";
    for (const Claim& claim : item.claims)
      text += fmt::format("<li><b class=\"{}\">{}</b>{}: <span class=\"soft\">{}</span></li>\n", claim.verdict,
                          mark_of(claim), words_of(claim), prose(claim.measured));
    text += "</ul>\n";
  }
  for (const Figure& figure : item.figures) text += page::html_of(figure, pictures);
  for (const Table& table : item.tables) text += page::html_of(table);
  return text + "</section>\n";
}

Json facts(const Results& results) {
  Json all = {{"onestep", results.version}, {"date", results.date}};
  all.update(results.machine);
  all.update(results.options);
  double seconds = 0;
  for (const Item& item : results.items) seconds += item.seconds;
  all["computing took"] = fmt::format("{:.1f} s", seconds);
  return all;
}

}  // namespace

std::string page_of(const Results& results, const page::Pictures& pictures) {
  std::string text = page::head(title) + fmt::format("<body>\n<main>\n<h1>{}</h1>\n", title);
  text +=
      "<p class=\"soft\">What the paper “One-step differentiation of iterative algorithms” shows and claims, computed by "
      "<code>onestep paper</code> on this machine.";
  if (const std::string tally = tally_of(results); !tally.empty()) text += fmt::format(" <b>{}.</b>", escaped(tally));
  text += "</p>\n";
  if (!pictures.missing.empty())
    text += fmt::format(
        "<p class=\"box\"><span class=\"state\">Figures are missing:</span> {}; then draw them with <code>onestep "
        "paper --from results.json</code>.</p>\n",
        escaped(pictures.missing));
  text += claims_table(results);
  text += "<nav>";
  for (const Item& item : results.items)
    text += fmt::format("<a href=\"#item-{}\">{}</a>\n", escaped(item.name), escaped(item.title));
  text += "</nav>\n";
  for (const Item& item : results.items) text += show(item, pictures);
  return text + "</main>\n" + page::foot(facts(results), "results.json") + "</body>\n</html>\n";
}

}  // namespace onestep::app::paper
