#include "terminal.hpp"
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <unistd.h>

namespace h3diff::cli {

Ink Ink::for_stream(int fd) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  const bool refused =
      (no_color != nullptr && *no_color != '\0') || (terminal != nullptr && std::string_view(terminal) == "dumb");
  return Ink(!refused && isatty(fd) == 1);
}

std::string Ink::wrap(const char* code, std::string_view text) const {
  return on_ ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}
std::string Ink::bold(std::string_view text) const { return wrap("1", text); }
std::string Ink::dim(std::string_view text) const { return wrap("2", text); }
std::string Ink::red(std::string_view text) const { return wrap("1;31", text); }
std::string Ink::green(std::string_view text) const { return wrap("1;32", text); }
std::string Ink::yellow(std::string_view text) const { return wrap("1;33", text); }

void Table::add(std::vector<std::string> cells, Tone tone) {
  cells.resize(columns_.size());
  rows_.push_back({std::move(cells), tone});
}

namespace {

std::string toned(const Ink& ink, Table::Tone tone, const std::string& line) {
  switch (tone) {
  case Table::Tone::good: return ink.green(line);
  case Table::Tone::bad: return ink.red(line);
  case Table::Tone::doubtful: return ink.yellow(line);
  case Table::Tone::faint: return ink.dim(line);
  case Table::Tone::plain: break;
  }
  return line;
}

} // namespace

std::string Table::text(const Ink& ink, std::size_t indent, std::size_t limit) const {
  std::vector<std::size_t> width(columns_.size());
  std::vector<bool> shown(columns_.size(), true);
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    width[c] = columns_[c].title.size();
    for (const Row& row : rows_)
      width[c] = std::max(width[c], row.cells[c].size());
  }
  const bool wraps = columns_.back().wraps;
  const auto total = [&] {
    std::size_t sum = indent;
    for (std::size_t c = 0; c < columns_.size(); ++c)
      if (shown[c])
        sum += width[c] + 2;
    return sum - 2;
  };
  for (std::size_t c = columns_.size(); c-- > 0 && total() > limit;)
    if (columns_[c].droppable)
      shown[c] = false;
  if (total() > limit) {
    std::size_t widest = wraps ? columns_.size() - 1 : columns_.size();
    for (std::size_t c = 0; c < columns_.size() && !wraps; ++c)
      if (shown[c] && !columns_[c].right && (widest == columns_.size() || width[c] > width[widest]))
        widest = c;
    if (widest < columns_.size()) {
      const std::size_t excess = total() - limit;
      width[widest] = width[widest] > excess + 12 ? width[widest] - excess : 12;
    }
  }

  const auto line = [&](const auto& cell) {
    std::string out(indent, ' ');
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (!shown[c])
        continue;
      if (wraps && c + 1 == columns_.size()) {
        std::string lines = paragraph(cell(c), "", std::string(out.size(), ' '), out.size(), limit);
        lines.pop_back();
        out += lines;
        continue;
      }
      const std::string text = shorten(cell(c), width[c]);
      out += columns_[c].right ? fmt::format("{:>{}}  ", text, width[c]) : fmt::format("{:<{}}  ", text, width[c]);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out;
  };
  std::string out = ink.dim(line([&](std::size_t c) { return columns_[c].title; }));
  out += '\n';
  for (const Row& row : rows_) {
    out += toned(ink, row.tone, line([&](std::size_t c) { return row.cells[c]; }));
    out += '\n';
  }
  return out;
}

std::string heading(const Ink& ink, std::string_view title, std::string_view rest) {
  return fmt::format("\n{}{}\n", ink.bold(title), rest);
}

std::string paragraph(std::string_view text, std::string_view first, std::string_view rest, std::size_t start,
                      std::size_t limit) {
  std::string out(first);
  std::size_t column = start + first.size();
  bool line_start = true;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty())
      continue;
    if (!line_start && column + 1 + word.size() > limit) {
      out += '\n';
      out += rest;
      column = rest.size();
      line_start = true;
    }
    if (!line_start) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
    line_start = false;
  }
  return out + "\n";
}

std::string shorten(std::string_view text, std::size_t width) {
  if (text.size() <= width)
    return std::string(text);
  if (width <= 5)
    return std::string(text.substr(0, width));
  const std::size_t tail = (width - 3) * 2 / 3; // names differ at their ends
  const std::size_t head = width - 3 - tail;
  return std::string(text.substr(0, head)) + "..." + std::string(text.substr(text.size() - tail));
}

std::string number(double value) {
  if (std::isnan(value))
    return "-";
  return fmt::format("{:.3g}", value);
}

std::string count(std::int64_t value) {
  std::string digits = fmt::format("{}", value);
  const std::size_t sign = value < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > sign + 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string byte_size(std::int64_t bytes) {
  constexpr std::array<const char*, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.{}f} {}", value, value < 10 ? 2 : 1, units[unit]);
}

std::string plural(std::int64_t n, std::string_view noun, std::string_view plural_noun) {
  if (n == 1)
    return fmt::format("1 {}", noun);
  return plural_noun.empty() ? fmt::format("{} {}s", count(n), noun) : fmt::format("{} {}", count(n), plural_noun);
}

} // namespace h3diff::cli
