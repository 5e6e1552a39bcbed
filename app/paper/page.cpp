#include "paper/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "paper/palette.h"

namespace onestep::app::paper {

namespace {

constexpr std::string_view style = R"(
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 17px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main, footer { max-width: 1120px; margin: 0 auto; padding: 0 20px; overflow-wrap: break-word; }
h1 { font-size: clamp(1.6rem, 5vw, 2.3rem); line-height: 1.15; margin: 2.2rem 0 .4rem; letter-spacing: -.015em; }
h2 { font-size: 1.45rem; line-height: 1.25; margin: 0 0 .3rem; letter-spacing: -.01em; }
h3 { font-size: 1.05rem; margin: 0 0 .5rem; }
p { margin: .4rem 0; max-width: 46rem; }
section { margin: 3.2rem 0 0; padding-top: 1.6rem; border-top: 1px solid var(--grid); }
a { color: var(--implicit-text); }
.soft, figcaption, footer { color: var(--soft); }
nav { margin: .9rem 0 0; display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; }
figure { margin: 1.6rem 0 0; }
figcaption { font-size: .95rem; max-width: 46rem; margin-top: .5rem; }
.panels { display: grid; gap: 1.4rem 1.6rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 380px), 1fr)); }
.one .panels { max-width: 620px; }
.panels p { font-size: .88rem; margin: 0; }
.panels svg { display: block; width: 100%; height: auto; }
.wide { overflow-x: auto; margin-top: .9rem; }
.table { margin-top: 1.8rem; }
.table p { font-size: .95rem; }
table { border-collapse: collapse; font-size: .95rem; font-variant-numeric: tabular-nums; }
.whole { white-space: nowrap; }
sup { line-height: 0; font-size: .75em; }
th, td { text-align: left; vertical-align: top; padding: .42rem 1.4rem .42rem 0; border-bottom: 1px solid var(--grid); }
th { font-weight: 600; border-bottom-color: var(--soft); }
.number { text-align: right; white-space: nowrap; }
.yes, .no, .differs, .state { font-weight: 600; white-space: nowrap; }
.yes { color: var(--estimate-text); }
.differs { color: var(--unrolled-text); }
.no, .state { color: var(--one_step-text); }
.box { border-left: 4px solid var(--one_step); padding: .5rem 0 .5rem .9rem; margin: 1rem 0; }
ul.claims { list-style: none; padding: 0; margin: .6rem 0 0; max-width: 46rem; }
ul.claims li { padding-left: 1.6rem; text-indent: -1.6rem; margin: .25rem 0; }
ul.claims li > b { display: inline-block; width: 1.6rem; text-indent: 0; }
footer { font-size: .88rem; margin-top: 3.2rem; padding-bottom: 2.5rem; }
footer dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; border-top: 1px solid var(--grid);
  padding-top: 1.2rem; }
footer dd { margin: 0; min-width: 0; }
@media (min-width: 1000px) {
  figure.one { display: grid; grid-template-columns: 620px 1fr; gap: 0 2rem; align-items: center; }
  figure.one h3, figure.one .box { grid-column: 1 / -1; }
}
@media (max-width: 640px) {
  body { font-size: 16px; }
  main, footer { padding: 0 14px; }
  th, td { padding-right: .9rem; }
  .table thead { display: none; }
  .table tr { display: block; padding: .6rem 0; border-bottom: 1px solid var(--grid); }
  .table td { display: block; border: 0; padding: .05rem 0; text-align: left; white-space: normal; }
  .table td:first-child { font-weight: 600; }
  .table td + td::before { content: attr(data-column) ": "; color: var(--soft); }
  table.stacked thead { display: none; }
  table.stacked, table.stacked tbody { display: block; }
  table.stacked tr { display: grid; grid-template-columns: 1fr auto; padding: .6rem 0; border-bottom: 1px solid var(--grid); }
  table.stacked td { grid-column: 1 / -1; border: 0; padding: .05rem 0; }
  table.stacked td:first-child { grid-column: 1; }
  table.stacked td:last-child { grid-column: 2; grid-row: 1; }
  table.stacked td:nth-child(3) { color: var(--soft); }
}
@media print { section { break-inside: avoid; } }
)";

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      case '\'': result += "&#39;"; break;
      default: result += c;
    }
  return result;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Escaped, with ρ^K, x_k and x_{k-1} as people write them: what follows is in braces, or a single letter or digit.
std::string formula(std::string_view text) {
  std::string result;
  std::size_t copied = 0;
  for (std::size_t at = 1; at + 1 < text.size(); ++at) {
    const char before = text[at - 1], mark = text[at];
    const bool has_base =
        is_letter(before) || is_digit(before) || before == ')' || (static_cast<unsigned char>(before) & 0x80U);
    if ((mark != '^' && mark != '_') || !has_base) continue;
    const bool braces = text[at + 1] == '{';
    const std::size_t begin = at + 1 + (braces ? 1 : 0), end = braces ? text.find('}', begin) : begin + 1;
    if (end == std::string_view::npos || (!braces && !is_letter(text[begin]) && !is_digit(text[begin]))) continue;
    const bool goes_on = !braces && end < text.size() && (is_letter(text[end]) || is_digit(text[end]) || text[end] == '_');
    if (goes_on) continue;  // a name such as one_step
    result += escaped(text.substr(copied, at - copied));
    result += fmt::format("<{0}>{1}</{0}>", mark == '^' ? "sup" : "sub", escaped(text.substr(begin, end - begin)));
    copied = end + (braces ? 1 : 0);
    at = copied;
  }
  return result + escaped(text.substr(copied));
}

// Sentences and cells: formulas, with 1.2e-13 as people write it, and never broken into two lines.
std::string prose(std::string_view text) {
  const auto is_word = [](char c) { return is_digit(c) || is_letter(c) || c == '.'; };
  std::string result;
  std::size_t copied = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (!is_digit(text[at]) || (at > 0 && is_word(text[at - 1]))) {
      ++at;
      continue;
    }
    const std::size_t e = std::min(text.find_first_not_of("0123456789.", at), text.size());
    std::size_t exponent = e + 1;
    const bool negative = exponent < text.size() && text[exponent] == '-';
    if (negative || (exponent < text.size() && text[exponent] == '+')) ++exponent;
    std::size_t end = exponent;
    while (end < text.size() && is_digit(text[end])) ++end;
    if (e >= text.size() || text[e] != 'e' || end == exponent ||
        (end < text.size() && is_word(text[end]) && text[end] != '.')) {
      at = e;
      continue;
    }
    while (exponent + 1 < end && text[exponent] == '0') ++exponent;
    const std::string_view mantissa = text.substr(at, e - at);
    result += formula(text.substr(copied, at - copied));
    result += fmt::format("<span class=\"whole\">{}10<sup>{}{}</sup></span>",
                          mantissa == "1" ? "" : fmt::format("{}\u202f·\u202f", mantissa), negative ? "−" : "",
                          text.substr(exponent, end - exponent));
    at = copied = end;
  }
  return result + formula(text.substr(copied));
}

void each_colour(const auto& work) {
  for (const Colour* c : {&ink, &soft, &grid}) work(*c);
  for (const Colour& c : palette()) work(c);
}

std::string colours(bool dark) {
  std::string text = fmt::format("--paper: {}; ", dark ? "#16181b" : "#ffffff");
  each_colour([&](const Colour& c) {
    text += fmt::format("--{0}: {1}; --{0}-text: {2}; ", c.method, dark ? c.dark : c.line, dark ? c.dark : c.text);
  });
  return text;
}

std::string head() {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n"
      "<title>One-step differentiation, reproduced</title>\n"
      "<style>\n:root {{ {}}}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {}}} }}{}</style>\n</head>\n",
      colours(false), colours(true), style);
}

// The colour "rgb( 51,  51,  51)" as #333333; empty when the text does not begin with one.
std::string colour_at(std::string_view text, std::size_t& length) {
  if (!text.starts_with("rgb(")) return "";
  std::string hex = "#";
  std::size_t at = 4;
  for (int i = 0; i < 3; ++i) {
    at = std::min(text.find_first_not_of(" ,", at), text.size());
    unsigned value = 0;
    const auto [end, problem] = std::from_chars(text.data() + at, text.data() + text.size(), value);
    if (problem != std::errc() || value > 255) return "";
    at = static_cast<std::size_t>(end - text.data());
    hex += fmt::format("{:02x}", value);
  }
  length = at + 1;
  return hex;
}

// The name that a colour of gnuplot's has on the page, where it follows the light or dark scheme.
std::string scheme_colour(const std::string& hex, bool text) {
  const auto same = [&](std::string_view other) {
    return std::ranges::equal(hex, other, [](char a, char b) { return a == (b >= 'A' && b <= 'F' ? b - 'A' + 'a' : b); });
  };
  std::string name;
  each_colour([&](const Colour& c) {
    if (name.empty() && same(text ? c.text : c.line)) name = fmt::format("var(--{}{})", c.method, text ? "-text" : "");
  });
  return name.empty() ? hex : name;
}

// An SVG of gnuplot's as a part of the page: its ids get a prefix, since all of them use the same ones, its colours become
// those of the scheme, and what is for a file of its own is cut off.
std::string inlined(std::string_view svg, const std::string& prefix, const std::string& name) {
  const std::size_t opening = svg.find("<svg"), body = svg.find('>', opening), box = svg.find("viewBox=\"", opening);
  std::string result;
  if (opening == svg.npos || body == svg.npos || box == svg.npos) return result;
  result =
      fmt::format("<svg xmlns:xlink=\"http://www.w3.org/1999/xlink\" role=\"img\" aria-label=\"{}\" width=\"100%\" {}\">",
                  escaped(name), svg.substr(box, svg.find('"', box + 9) - box));
  svg.remove_prefix(body + 1);
  bool in_tag = false;
  for (std::size_t at = 0; at < svg.size();) {
    const std::string_view rest = svg.substr(at);
    if (rest.front() == '<') in_tag = true;
    if (rest.front() == '>') in_tag = false;
    std::size_t length = 0;
    if (in_tag && (rest.starts_with(" id='") || rest.starts_with(" id=\""))) {
      result += rest.substr(0, 5);
      result += prefix;
      at += 5;
    } else if (in_tag && (rest.starts_with("href='#") || rest.starts_with("url(#"))) {
      const std::size_t hash = rest.find('#') + 1;
      result += rest.substr(0, hash);
      result += prefix;
      at += hash;
    } else if (const std::string hex = in_tag ? colour_at(rest, length) : ""; !hex.empty()) {
      const bool text = result.ends_with("fill=\"");
      result += scheme_colour(hex, text);
      at += length;
    } else {
      result += rest.front();
      ++at;
    }
  }
  return result;
}

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

std::string show(const Figure& figure, const Pictures& pictures) {
  std::string text = fmt::format("<figure id=\"figure-{}\"{}>\n<h3>{}</h3>\n", escaped(figure.id),
                                 figure.panels.size() == 1 ? " class=\"one\"" : "", escaped(figure.title));
  const auto drawn = pictures.drawn.find(figure.id);
  if (drawn != pictures.drawn.end()) {
    text += "<div class=\"panels\">\n";
    for (std::size_t i = 0; i < figure.panels.size() && i < drawn->second.panels.size(); ++i) {
      const Panel& panel = figure.panels[i];
      const std::string& name = panel.title.empty() ? figure.title : panel.title;
      text += "<div>" + inlined(drawn->second.panels[i], fmt::format("{}-{}-", figure.id, i), name);
      for (const std::string& note : panel.notes) text += fmt::format("<p class=\"soft\">{}</p>", prose(note));
      text += "</div>\n";
    }
    text += "</div>\n";
  } else {
    const auto failed = pictures.failed.find(figure.id);
    text += fmt::format("<p class=\"box\"><span class=\"state\">Not drawn.</span> {}</p>\n",
                        escaped(failed != pictures.failed.end() ? failed->second : pictures.missing));
    for (const Panel& panel : figure.panels)
      for (const std::string& note : panel.notes) text += fmt::format("<p class=\"soft\">{}</p>\n", prose(note));
  }
  text += fmt::format("<figcaption>{}", prose(figure.caption));
  if (drawn != pictures.drawn.end())
    text += fmt::format(" <span class=\"whole\"><a href=\"{0}.svg\">SVG</a> <a href=\"{0}.png\">PNG</a></span>", figure.id);
  return text + "</figcaption>\n</figure>\n";
}

// Digits at the front, or a sign or a dash and digits: such a column is set to the right.
bool is_number(std::string_view text) {
  while (!text.empty() && (text.front() == '-' || text.front() == '+' || text.front() == '<')) text.remove_prefix(1);
  return !text.empty() && is_digit(text.front()) && text.find_first_of(" \t") == text.npos;
}

std::string show(const Table& table) {
  std::vector<bool> numbers(table.columns.size(), !table.rows.empty());
  for (const auto& row : table.rows)
    for (std::size_t i = 0; i < row.size() && i < numbers.size(); ++i)
      numbers[i] = numbers[i] && (row[i].empty() || is_number(row[i]));
  const auto cells = [&](const std::vector<std::string>& row, const char* tag) {
    std::string text = "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i)
      text += fmt::format("<{0}{1} data-column=\"{2}\">{3}</{0}>", tag,
                          i < numbers.size() && numbers[i] ? " class=\"number\"" : "",
                          i < table.columns.size() ? escaped(table.columns[i]) : "", prose(row[i]));
    return text + "</tr>\n";
  };
  std::string text = fmt::format(
      "<div class=\"table\" id=\"table-{}\">\n<h3>{}</h3>\n<p class=\"soft\">{}</p>\n<div class=\"wide\"><table>\n"
      "<thead>{}</thead>\n<tbody>\n",
      escaped(table.id), escaped(table.title), prose(table.caption), cells(table.columns, "th"));
  for (const auto& row : table.rows) text += cells(row, "td");
  return text + "</tbody>\n</table></div>\n</div>\n";
}

std::string show(const Item& item, const Pictures& pictures) {
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
  for (const Figure& figure : item.figures) text += show(figure, pictures);
  for (const Table& table : item.tables) text += show(table);
  return text + "</section>\n";
}

std::string foot(const Results& results) {
  std::string text = "<footer>\n<dl>\n";
  const auto line = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) text += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escaped(name), escaped(value));
  };
  const auto lines = [&](const Json& object) {
    for (const auto& [key, value] : object.items())
      line(key, value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace));
  };
  line("onestep", results.version);
  line("date", results.date);
  lines(results.machine);
  lines(results.options);
  double seconds = 0;
  for (const Item& item : results.items) seconds += item.seconds;
  line("computing took", fmt::format("{:.1f} s", seconds));
  return text + "</dl>\n<p>Every number on this page is in <a href=\"results.json\">results.json</a>.</p>\n</footer>\n";
}

}  // namespace

std::string page_of(const Results& results, const Pictures& pictures) {
  std::string text = head() + "<body>\n<main>\n<h1>One-step differentiation, reproduced</h1>\n";
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
  return text + "</main>\n" + foot(results) + "</body>\n</html>\n";
}

}  // namespace onestep::app::paper
