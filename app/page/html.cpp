// The style sheet, and figures, tables and galleries as HTML.
#include "page/html.h"

#include <fmt/format.h>

#include <algorithm>

#include "page/inline_svg.h"
#include "page/palette.h"
#include "page/png.h"
#include "page/text.h"

namespace onestep::app::page {

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
p { margin: .4rem 0; max-width: 58rem; }
section { margin: 3.2rem 0 0; padding-top: 1.6rem; border-top: 1px solid var(--grid); }
a { color: var(--implicit-text); }
.soft, figcaption, footer { color: var(--soft); }
nav { margin: .9rem 0 0; display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; }
figure { margin: 1.6rem 0 0; }
figcaption { font-size: .95rem; max-width: 58rem; margin-top: .5rem; }
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
ul.claims { list-style: none; padding: 0; margin: .6rem 0 0; max-width: 62rem; }
ul.claims li { padding-left: 1.6rem; text-indent: -1.6rem; margin: .25rem 0; }
ul.claims li > b { display: inline-block; width: 1.6rem; text-indent: 0; }
.gallery { margin-top: 1.8rem; }
.gallery ul { list-style: none; padding: 0; margin: .9rem 0 0; display: grid; gap: 1rem .9rem;
  grid-template-columns: repeat(auto-fill, minmax(90px, 1fr)); }
.gallery li { font-size: .82rem; line-height: 1.35; color: var(--soft); }
.gallery img { display: block; width: 100%; aspect-ratio: 1; image-rendering: pixelated; margin-bottom: .3rem;
  border-bottom: 4px solid var(--grid); }
.gallery li.marked img { border-bottom-color: var(--one_step); }
.gallery span { display: block; }
.gallery span:first-of-type { color: var(--ink); font-weight: 600; }
.answer { font-size: 1.15rem; max-width: 62rem; }
.answer::first-letter { text-transform: uppercase; }
.tables { display: flex; flex-wrap: wrap; gap: 0 4rem; }
.tables .table { max-width: 100%; }
.tables .table p { max-width: 33rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--grid); border-radius: 4px; padding: .7rem .9rem;
  font-size: .92rem; }
footer { font-size: .88rem; margin-top: 3.2rem; padding-bottom: 2.5rem; }
footer dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; border-top: 1px solid var(--grid);
  padding-top: 1.2rem; }
footer dd { margin: 0; min-width: 0; }
@media (min-width: 1000px) {
  figure.one { display: inline-block; width: calc(50% - 1.9rem); margin-right: 1.6rem; vertical-align: top; }
  figure.one:not(figure.one + figure.one):not(:has(+ figure.one)) { display: grid; width: auto; margin-right: 0;
    grid-template-columns: minmax(0, 620px) minmax(0, 1fr); column-gap: 2.2rem; }
  figure.one > h3 { grid-column: 1 / -1; }
}
@media (max-width: 640px) {
  body { font-size: 16px; }
  main, footer { padding: 0 14px; }
  th, td { padding-right: .9rem; }
  .table:not(.slim) thead { display: none; }
  .table:not(.slim) tr { display: block; padding: .6rem 0; border-bottom: 1px solid var(--grid); }
  .table:not(.slim) td { display: block; border: 0; padding: .05rem 0; text-align: left; white-space: normal; }
  .table:not(.slim) td:first-child { font-weight: 600; }
  .table:not(.slim) td:empty { display: none; }
  .table:not(.slim) td.number:first-child::before { content: attr(data-column) " "; }
  .table:not(.slim) td + td::before { content: attr(data-column) ": "; color: var(--soft); }
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
    const bool in_a_word =
        mark == '_' && at > 1 && (is_letter(text[at - 2]) || is_digit(text[at - 2]) || text[at - 2] == '_');
    if (in_a_word) continue;  // a name such as class_0
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

std::string colours(bool dark) {
  std::string text = fmt::format("--paper: {}; ", dark ? "#16181b" : "#ffffff");
  for (const Colour* c : all_colours())
    text += fmt::format("--{0}: {1}; --{0}-text: {2}; ", c->method, dark ? c->dark : c->line, dark ? c->dark : c->text);
  return text;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      case '\'': result += "&#39;"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t')  // not allowed in a page
          result += fmt::format("\\x{:02x}", c);
        else
          result += c;
    }
  return result;
}

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

std::string head(std::string_view title) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n"
      "<title>{}</title>\n"
      "<style>\n:root {{ {}}}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {}}} }}{}</style>\n</head>\n",
      escaped(title), colours(false), colours(true), style);
}

std::string html_of(const Figure& figure, const Pictures& pictures) {
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

bool is_number(std::string_view text) {
  while (!text.empty() && (text.front() == '-' || text.front() == '+' || text.front() == '<')) text.remove_prefix(1);
  return !text.empty() && is_digit(text.front()) && text.find_first_of(" \t") == text.npos;
}

namespace {

std::string name_of_data(const std::string& name) {
  constexpr std::size_t most_letters = 40;
  const std::string shown = shortened(name, most_letters);
  return shown == name ? escaped(name) : fmt::format("<span title=\"{}\">{}</span>", escaped(name), escaped(shown));
}

}  // namespace

std::string html_of(const Table& table, Cells contents) {
  std::vector<bool> numbers(table.columns.size(), !table.rows.empty());
  for (const auto& row : table.rows)
    for (std::size_t i = 0; i < row.size() && i < numbers.size(); ++i)
      numbers[i] = numbers[i] && (row[i].empty() || is_number(row[i]));
  // The first column names what the row is about, also where that is a number.
  const auto is_name = [&](std::size_t column) {
    return contents == Cells::names && (column == 0 || column >= numbers.size() || !numbers[column]);
  };
  const auto cells = [&](const std::vector<std::string>& row, const char* tag) {
    std::string text = "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i)
      text += fmt::format(
          "<{0}{1} data-column=\"{2}\">{3}</{0}>", tag, i < numbers.size() && numbers[i] ? " class=\"number\"" : "",
          i < table.columns.size() ? escaped(table.columns[i]) : "", is_name(i) ? name_of_data(row[i]) : prose(row[i]));
    return text + "</tr>\n";
  };
  // Few and short columns fit a telephone as they are; others become a list there.
  std::size_t letters = 0;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    std::size_t widest = columns_of(table.columns[i]);
    for (const auto& row : table.rows)
      if (i < row.size()) widest = std::max(widest, columns_of(row[i]));
    letters += widest;
  }
  std::string text = fmt::format(
      "<div class=\"table{}\" id=\"table-{}\">\n<h3>{}</h3>\n<p class=\"soft\">{}</p>\n<div class=\"wide\"><table>\n"
      "<thead>{}</thead>\n<tbody>\n",
      letters <= 36 || table.is_matrix ? " slim" : "", escaped(table.id), escaped(table.title), prose(table.caption),
      cells(table.columns, "th"));
  for (const auto& row : table.rows) text += cells(row, "td");
  return text + "</tbody>\n</table></div>\n</div>\n";
}

std::string html_of(const Gallery& gallery) {
  std::string text = fmt::format("<div class=\"gallery\" id=\"gallery-{}\">\n<h3>{}</h3>\n<p class=\"soft\">{}</p>\n<ul>\n",
                                 escaped(gallery.id), escaped(gallery.title), prose(gallery.caption));
  for (const Picture& picture : gallery.pictures) {
    text += fmt::format("<li{}><img alt=\"{}\" src=\"data:image/png;base64,{}\">", picture.marked ? " class=\"marked\"" : "",
                        escaped(fmt::format("{}", fmt::join(picture.lines, ", "))), base64(png_of(picture.pixels)));
    for (const std::string& line : picture.lines) text += fmt::format("<span>{}</span>", prose(line));
    text += "</li>\n";
  }
  return text + "</ul>\n</div>\n";
}

std::string foot(const Json& facts, std::string_view file) {
  std::string text = "<footer>\n<dl>\n";
  for (const auto& [key, value] : facts.items()) {
    const std::string shown =
        value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (!shown.empty()) text += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escaped(key), escaped(shown));
  }
  return text + fmt::format("</dl>\n<p>Every number on this page is in <a href=\"{0}\">{0}</a>.</p>\n</footer>\n", file);
}

}  // namespace onestep::app::page
