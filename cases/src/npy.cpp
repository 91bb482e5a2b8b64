#include "h3diff/cases/npy.hpp"
#include "file.hpp"
#include "h3diff/probes/dump.hpp" // printable
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <utility>

namespace h3diff::cases {

using probes::DType;

namespace {

constexpr std::string_view magic("\x93NUMPY", 6);

// The header is a literal of a Python dictionary. Reads just the forms that NumPy writes.
class Header {
public:
  explicit Header(std::string_view text) : text_(text) {}

  bool read(NpyArray& out) {
    if (!take('{'))
      return false;
    bool descr = false, order = false, shape = false;
    while (!take('}')) {
      std::string key;
      if (!quoted(key) || !take(':'))
        return false;
      if (key == "descr" && !descr)
        descr = descr_value(out.descr);
      else if (key == "fortran_order" && !order)
        order = boolean(out.fortran);
      else if (key == "shape" && !shape)
        shape = tuple(out.shape);
      else
        return false;
      if (!take(',') && peek() != '}')
        return false;
    }
    skip();
    return descr && order && shape && text_.empty();
  }

private:
  std::string_view text_;

  void skip() { text_.remove_prefix(std::min(text_.find_first_not_of(" \t\n\r"), text_.size())); }
  char peek() {
    skip();
    return text_.empty() ? '\0' : text_.front();
  }
  bool take(char c) {
    if (peek() != c)
      return false;
    text_.remove_prefix(1);
    return true;
  }
  bool quoted(std::string& out) {
    const char quote = peek();
    if (quote != '\'' && quote != '"')
      return false;
    const auto end = text_.find(quote, 1);
    if (end == std::string_view::npos)
      return false;
    out = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return true;
  }
  // A structure's descr is a list; it is kept as text, to be refused by name.
  bool descr_value(std::string& out) {
    if (peek() != '[')
      return quoted(out);
    int depth = 0;
    for (std::size_t i = 0; i < text_.size(); ++i) {
      depth += text_[i] == '[' ? 1 : text_[i] == ']' ? -1 : 0;
      if (depth == 0) {
        out = text_.substr(0, i + 1);
        text_.remove_prefix(i + 1);
        return true;
      }
    }
    return false;
  }
  bool boolean(bool& out) {
    skip();
    for (const auto& [word, value] : {std::pair{std::string_view("True"), true}, {std::string_view("False"), false}})
      if (text_.starts_with(word)) {
        text_.remove_prefix(word.size());
        out = value;
        return true;
      }
    return false;
  }
  bool tuple(std::vector<std::int64_t>& out) {
    if (!take('('))
      return false;
    while (!take(')')) {
      if (peek() < '0' || peek() > '9')
        return false;
      std::int64_t value = 0;
      while (!text_.empty() && text_.front() >= '0' && text_.front() <= '9') {
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, text_.front() - '0', &value))
          return false;
        text_.remove_prefix(1);
      }
      out.push_back(value);
      if (!take(',') && peek() != ')')
        return false;
    }
    return true;
  }
};

// The fact that is wrong with a type, or nothing and fills dtype and item_size.
std::optional<std::string> read_type(NpyArray& array) {
  const std::string shown = probes::printable(array.descr, 60);
  if (array.descr.size() < 2 || array.descr.front() == '[')
    return fmt::format("holds elements of type {}, a structure; plain numbers are wanted", shown);
  const std::string_view type = std::string_view(array.descr).substr(1);
  if (type.front() == 'O' || array.descr == "O")
    return std::string("holds Python objects, which are not read");
  if (array.descr.front() == '>')
    return fmt::format("holds big-endian elements ({}); write little-endian ones", shown);
  constexpr std::array<std::pair<std::string_view, DType>, 8> known{{{"f8", DType::float64},
                                                                     {"f4", DType::float32},
                                                                     {"f2", DType::float16},
                                                                     {"i1", DType::int8},
                                                                     {"u1", DType::uint8},
                                                                     {"i4", DType::int32},
                                                                     {"i8", DType::int64},
                                                                     {"b1", DType::boolean}}};
  for (const auto& [name, dtype] : known)
    if (type == name && (array.descr.front() == '<' || array.descr.front() == '|')) {
      array.dtype = dtype;
      array.item_size = probes::item_size(dtype);
      return std::nullopt;
    }
  if (type == "V1" || type == "V2") {
    array.item_size = type == "V1" ? 1 : 2;
    return std::nullopt;
  }
  return fmt::format("holds elements of type {}, which probes do not know", shown);
}

} // namespace

Result<NpyArray> open_npy(const std::string& path) {
  const auto wrong = [&](const std::string& fact) { return bad_input(fmt::format("{}: {}", path, fact)); };
  auto mapped = MappedFile::open(path);
  if (!mapped)
    return mapped.error();
  const std::span<const std::byte> bytes = (*mapped)->bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(magic) || text.size() < 10)
    return wrong("is no .npy file: it does not begin with \\x93NUMPY and a version");
  const auto at = [&](std::size_t i) { return std::to_integer<std::size_t>(bytes[i]); };
  const std::size_t version = at(6);
  if (version < 1 || version > 3)
    return wrong(fmt::format("has .npy version {}; 1 to 3 are known", version));
  const std::size_t begin = version == 1 ? 10 : 12;
  if (text.size() < begin)
    return wrong("ends inside its header");
  const std::size_t length = version == 1 ? at(8) | at(9) << 8 : at(8) | at(9) << 8 | at(10) << 16 | at(11) << 24;
  if (length > text.size() - begin)
    return wrong(fmt::format("claims a header of {} bytes and has {} after it", length, text.size() - begin));

  NpyArray array;
  if (!Header(text.substr(begin, length)).read(array))
    return wrong("has a header that is not a dictionary of descr, fortran_order and shape");
  if (const auto fact = read_type(array))
    return wrong(*fact);
  std::uint64_t wanted = array.item_size;
  for (const std::int64_t size : array.shape)
    if (__builtin_mul_overflow(wanted, static_cast<std::uint64_t>(size), &wanted))
      return wrong("has a shape whose size overflows");
  array.bytes = bytes.subspan(begin + length);
  if (array.bytes.size() != wanted)
    return wrong(fmt::format("has {} bytes of data, but its type and shape need {}", array.bytes.size(), wanted));
  array.file = *mapped;
  return array;
}

} // namespace h3diff::cases
