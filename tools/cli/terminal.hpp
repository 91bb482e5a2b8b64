// What reporters share: colour, width, tables, numbers. Nothing here knows what it prints.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace h3diff::cli {

inline constexpr std::size_t line_width = 100;

// Colours are on only where the stream is a terminal and NO_COLOR is unset or empty.
class Ink {
public:
  explicit Ink(bool on = false) : on_(on) {}
  static Ink for_stream(int fd);
  bool on() const { return on_; }
  std::string bold(std::string_view) const;
  std::string dim(std::string_view) const;
  std::string red(std::string_view) const;
  std::string green(std::string_view) const;
  std::string yellow(std::string_view) const;

private:
  std::string wrap(const char* code, std::string_view) const;
  bool on_;
};

// Columns are as wide as their widest cell. While a line is longer than the limit, the last droppable column goes; then
// a last column that wraps is wrapped, else the widest left-aligned one is cut in the middle.
class Table {
public:
  struct Column {
    std::string title;
    bool right = false; // numbers
    bool droppable = false;
    bool wraps = false; // free text; only the last column
  };
  enum class Tone { plain, good, bad, doubtful, faint };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> cells, Tone tone = Tone::plain);
  bool empty() const { return rows_.empty(); }
  // With a heading; ends in a newline.
  std::string text(const Ink&, std::size_t indent = 2, std::size_t limit = line_width) const;

private:
  struct Row {
    std::vector<std::string> cells;
    Tone tone;
  };
  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

// A section's title on a line of its own after an empty line; `rest` follows the title plainly.
std::string heading(const Ink&, std::string_view title, std::string_view rest = {});

// Breaks at spaces so that no line is longer than `limit`; the first line starts with `first`, the others
// with `rest`. The first one begins at column `start` of a line that is already there. Ends in a newline.
std::string paragraph(std::string_view text, std::string_view first = "  ", std::string_view rest = "    ",
                      std::size_t start = 0, std::size_t limit = line_width);

std::string shorten(std::string_view text, std::size_t width); // "blocks.0...out_proj"
std::string number(double);                                    // 3 significant digits, "-" for NaN
std::string count(std::int64_t);                               // 80,661
std::string byte_size(std::int64_t);                           // 1.5 GiB
std::string plural(std::int64_t n, std::string_view noun, std::string_view plural_noun = {}); // "1 probe", "2 probes"

} // namespace h3diff::cli
