#include "import_transforms.hpp"
#include "h3diff/probes/dump.hpp" // printable
#include "json.hpp"
#include <array>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>

namespace h3diff::cases {

using nlohmann::json;
using probes::printable;

namespace {

constexpr std::int64_t large = std::int64_t{1} << 40;

// A count in a map: a number, or the name of a size of the model or of the probe.
struct Size {
  std::int64_t number = 0;
  std::string name; // empty: `number`

  std::int64_t value(const TransformContext& context) const {
    const probes::ModelShape& m = context.shape;
    const std::array<std::pair<std::string_view, std::int64_t>, 8> known{
        {{"rows", context.rows},
         {"cols", context.cols},
         {"hidden_size", m.hidden_size},
         {"num_attention_heads", m.num_attention_heads},
         {"attention_head_dim", m.attention_head_dim},
         {"inner_dim", m.inner_dim()},
         {"ffn_dim", m.ffn_dim},
         {"time_embed_dim", m.time_embed_dim}}};
    for (const auto& [word, size] : known)
      if (word == name)
        return size;
    return number;
  }
  static std::optional<Size> parse(const json& value) {
    if (value.is_number_integer() && value.get<std::int64_t>() >= -1 && value.get<std::int64_t>() <= large)
      return Size{value.get<std::int64_t>(), {}};
    if (value.is_string())
      for (const char* word : {"rows", "cols", "hidden_size", "num_attention_heads", "attention_head_dim", "inner_dim",
                               "ffn_dim", "time_embed_dim"})
        if (value == word)
          return Size{0, word};
    return std::nullopt;
  }
};

Flaw each(std::vector<ImportTensor>& parts, const std::function<Flaw(ImportTensor&)>& act) {
  for (ImportTensor& part : parts)
    if (auto flaw = act(part))
      return flaw;
  return std::nullopt;
}

std::vector<std::int64_t> range(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> indices;
  for (std::int64_t i = begin; i < end; ++i)
    indices.push_back(i);
  return indices;
}

// Reads one transform's arguments; the first failure is kept by Fields.
class Parser {
public:
  Parser(const json& value, const std::string& source, const std::string& where)
      : value_(value), fields_(value, source, where) {}

  Result<Transform> operator()() {
    Transform transform;
    if (!fields_.has("op"))
      fields_.fail("op", "is missing");
    fields_.text("op", transform.op);
    if (auto read = fields_.finish(); !read)
      return read.error();
    if (transform.op == "transpose")
      transform.apply = make_transpose();
    else if (transform.op == "reshape")
      transform.apply = make_reshape();
    else if (transform.op == "slice")
      transform.apply = make_slice();
    else if (transform.op == "crop")
      transform.apply = make_crop();
    else if (transform.op == "reorder")
      transform.apply = make_reorder();
    else if (transform.op == "gather")
      transform.apply = make_gather();
    else if (transform.op == "negate")
      transform.apply = [](auto& parts, const auto&) { return each(parts, negate); };
    else if (transform.op == "scale")
      transform.apply = make_scale();
    else if (transform.op == "cast")
      transform.apply = make_cast();
    else if (transform.op == "concatenate")
      transform.apply = [axis = axis()](auto& parts, const auto&) { return concatenate(parts, axis); };
    else if (transform.op == "add")
      transform.apply = [](auto& parts, const auto&) { return add(parts); };
    else
      fields_.fail("op", fmt::format("is \"{}\"; known are transpose, reshape, slice, crop, reorder, gather, negate, "
                                     "scale, cast, concatenate and add",
                                     printable(transform.op, 40)));
    if (auto read = fields_.finish_strict(); !read)
      return read.error();
    return transform;
  }

private:
  using Apply = std::function<Flaw(std::vector<ImportTensor>&, const TransformContext&)>;
  const json& value_;
  Fields fields_;

  std::int64_t axis() {
    std::int64_t axis = 0;
    if (!fields_.has("axis"))
      fields_.fail("axis", "is missing");
    fields_.integer("axis", axis, -6, 5);
    return axis;
  }

  Size size(const char* key, std::int64_t otherwise) {
    fields_.ignore(key);
    if (!fields_.has(key))
      return {otherwise, {}};
    const auto parsed = Size::parse(value_[key]);
    if (!parsed)
      fields_.fail(key, "must be a count, or the name of a size: rows, cols, hidden_size, num_attention_heads, "
                        "attention_head_dim, inner_dim, ffn_dim, time_embed_dim");
    return parsed.value_or(Size{});
  }

  // Without an order the axes are reversed, as for a plain matrix.
  Apply make_transpose() {
    std::vector<std::int64_t> order;
    fields_.integers("order", order, 0, 5);
    return [order](std::vector<ImportTensor>& parts, const TransformContext&) {
      return each(parts, [&](ImportTensor& part) {
        std::vector<std::int64_t> all = order;
        for (std::size_t i = part.shape.size(); order.empty() && i-- > 0;)
          all.push_back(static_cast<std::int64_t>(i));
        return transpose(part, all);
      });
    };
  }

  Apply make_reshape() {
    std::vector<Size> sizes;
    fields_.ignore("shape");
    if (!fields_.has("shape") || !value_["shape"].is_array() || value_["shape"].size() > 6) {
      fields_.fail("shape", "must be a list of at most 6 sizes");
    } else {
      for (const json& item : value_["shape"]) {
        const auto parsed = Size::parse(item);
        if (!parsed)
          fields_.fail("shape", "must hold counts, -1 once, or names of sizes");
        sizes.push_back(parsed.value_or(Size{}));
      }
    }
    return [sizes](std::vector<ImportTensor>& parts, const TransformContext& context) {
      std::vector<std::int64_t> shape;
      for (const Size& one : sizes)
        shape.push_back(one.value(context));
      return each(parts, [&](ImportTensor& part) { return reshape(part, shape); });
    };
  }

  // By bounds, or one of `of` equal parts; with `groups`, that part of each of so many equal groups (qkv by head).
  Apply make_slice() {
    const std::int64_t along = axis();
    if (fields_.has("part") == fields_.has("begin"))
      fields_.fail("part", "with of, or begin with end, is wanted");
    if (fields_.has("part") != fields_.has("of") || fields_.has("begin") != fields_.has("end") ||
        (fields_.has("groups") && !fields_.has("part")))
      fields_.fail("of", "goes with part, end with begin, and groups with both part and of");
    if (fields_.has("begin")) {
      const Size begin = size("begin", 0), end = size("end", 0);
      return [=](std::vector<ImportTensor>& parts, const TransformContext& context) {
        return each(parts, [&](ImportTensor& part) -> Flaw {
          std::int64_t at = along;
          if (auto flaw = resolve_axis(part, at))
            return flaw;
          const std::int64_t b = begin.value(context), e = end.value(context);
          if (b < 0 || e < b || e > part.shape[static_cast<std::size_t>(at)])
            return fmt::format("{} to {} is outside axis {} of shape {}", b, e, at, shape_text(part.shape));
          return take(part, at, range(b, e));
        });
      };
    }
    std::int64_t index = 0, of = 1;
    fields_.integer("of", of, 1, 64);
    fields_.integer("part", index, 0, of - 1);
    const Size groups = size("groups", 1);
    return [=](std::vector<ImportTensor>& parts, const TransformContext& context) {
      return each(parts, [&](ImportTensor& part) -> Flaw {
        std::int64_t at = along;
        if (auto flaw = resolve_axis(part, at))
          return flaw;
        const std::int64_t n = groups.value(context), length = part.shape[static_cast<std::size_t>(at)];
        if (n < 1 || length % (n * of) != 0)
          return fmt::format("axis {} of shape {} does not split into {} groups of {} parts", at,
                             shape_text(part.shape), n, of);
        const std::int64_t piece = length / (n * of);
        std::vector<std::int64_t> indices;
        for (std::int64_t g = 0; g < n; ++g)
          for (std::int64_t i = 0; i < piece; ++i)
            indices.push_back((g * of + index) * piece + i);
        return take(part, at, indices);
      });
    };
  }

  // Padding goes: keeps `to` of an axis, from its start or its end.
  Apply make_crop() {
    const std::int64_t along = axis();
    if (!fields_.has("to"))
      fields_.fail("to", "is missing");
    const Size to = size("to", 0);
    std::string from = "start";
    fields_.text("from", from);
    if (from != "start" && from != "end")
      fields_.fail("from", "must be \"start\" or \"end\", where what is kept stands");
    return [=](std::vector<ImportTensor>& parts, const TransformContext& context) {
      return each(parts, [&](ImportTensor& part) -> Flaw {
        std::int64_t at = along;
        if (auto flaw = resolve_axis(part, at))
          return flaw;
        const std::int64_t length = part.shape[static_cast<std::size_t>(at)], kept = to.value(context);
        if (kept < 0 || kept > length)
          return fmt::format("axis {} of shape {} cannot be cropped to {}", at, shape_text(part.shape), kept);
        return take(part, at, from == "start" ? range(0, kept) : range(length - kept, length));
      });
    };
  }

  // By indices, by a tensor of indices, or by equal blocks ([1,0]: halves swapped).
  Apply make_reorder() {
    const std::int64_t along = axis();
    std::vector<std::int64_t> order, blocks;
    std::string tensor;
    if (fields_.has("order") + fields_.has("blocks") + fields_.has("tensor") != 1)
      fields_.fail("order", "or blocks or tensor is wanted, one of them");
    fields_.integers("order", order, 0, large);
    fields_.integers("blocks", blocks, 0, 1023);
    fields_.text("tensor", tensor);
    for (const auto* list : {&order, &blocks}) {
      std::vector<std::int64_t> sorted = *list;
      std::sort(sorted.begin(), sorted.end());
      if (sorted != range(0, static_cast<std::int64_t>(sorted.size())))
        fields_.fail(list == &order ? "order" : "blocks", "must be a permutation of 0, 1, 2 and so on");
    }
    return [=](std::vector<ImportTensor>& parts, const TransformContext& context) {
      return each(parts, [&](ImportTensor& part) -> Flaw {
        std::int64_t at = along;
        if (auto flaw = resolve_axis(part, at))
          return flaw;
        const std::int64_t length = part.shape[static_cast<std::size_t>(at)];
        std::vector<std::int64_t> indices = order;
        if (!tensor.empty()) {
          const SourceTensor* source = context.find(tensor);
          if (source == nullptr)
            return fmt::format("the row order {} is absent", printable(tensor));
          const ImportTensor held = ImportSource::load(*source);
          if (held.dtype != probes::DType::int32 && held.dtype != probes::DType::int64)
            return fmt::format("the row order {} is {}, not int32 or int64", printable(tensor),
                               probes::name(held.dtype));
          for (std::int64_t i = 0, n = held.elements(); i < n; ++i)
            indices.push_back(static_cast<std::int64_t>(probes::to_double(
                held.dtype, held.bytes.data() + static_cast<std::size_t>(i) * probes::item_size(held.dtype))));
          std::vector<std::int64_t> sorted = indices;
          std::sort(sorted.begin(), sorted.end());
          if (sorted != range(0, static_cast<std::int64_t>(sorted.size())))
            return fmt::format("the row order {} is no permutation", printable(tensor));
        }
        if (!blocks.empty()) {
          const auto n = static_cast<std::int64_t>(blocks.size());
          if (length % n != 0)
            return fmt::format("axis {} of shape {} does not split into {} blocks", at, shape_text(part.shape), n);
          for (const std::int64_t block : blocks)
            for (std::int64_t i = 0; i < length / n; ++i)
              indices.push_back(block * (length / n) + i);
        }
        if (static_cast<std::int64_t>(indices.size()) != length)
          return fmt::format("an order of {} indices does not fit axis {} of shape {}", indices.size(), at,
                             shape_text(part.shape));
        return take(part, at, indices);
      });
    };
  }

  // Rows of a tensor of the whole sequence, where the bundle's index tensor says they stand.
  Apply make_gather() {
    const std::int64_t along = axis();
    std::string list;
    fields_.text("indices", list);
    if (list != "video_indices" && list != "audio_indices" && list != "text_indices")
      fields_.fail("indices", "must be video_indices, audio_indices or text_indices, the bundle's");
    return [along, list](std::vector<ImportTensor>& parts, const TransformContext& context) {
      const probes::SequenceLayout& layout = context.layout;
      const auto& indices = list == "video_indices"   ? layout.video_indices
                            : list == "audio_indices" ? layout.audio_indices
                                                      : layout.text_indices;
      return each(parts, [&](ImportTensor& part) -> Flaw {
        std::int64_t at = along;
        if (auto flaw = resolve_axis(part, at))
          return flaw;
        if (part.shape[static_cast<std::size_t>(at)] != layout.rows)
          return fmt::format("axis {} of shape {} is not the sequence of {} rows", at, shape_text(part.shape),
                             layout.rows);
        return take(part, at, indices);
      });
    };
  }

  Apply make_scale() {
    double by = 1;
    if (!fields_.has("by"))
      fields_.fail("by", "is missing");
    fields_.number("by", by, -std::numeric_limits<double>::infinity());
    return [by](std::vector<ImportTensor>& parts, const TransformContext&) {
      return each(parts, [by](ImportTensor& part) { return scale(part, by); });
    };
  }

  Apply make_cast() {
    std::string text;
    fields_.text("dtype", text);
    const auto dtype = probes::parse_dtype(text);
    if (!dtype)
      fields_.fail("dtype", fmt::format("is \"{}\", which is no dtype", printable(text, 40)));
    const probes::DType to = dtype.value_or(probes::DType::float32);
    return [to](std::vector<ImportTensor>& parts, const TransformContext&) {
      return each(parts, [to](ImportTensor& part) { return cast(part, to); });
    };
  }
};

} // namespace

Result<Transform> parse_transform(const json& value, const std::string& source, const std::string& where) {
  return Parser(value, source, where)();
}

} // namespace h3diff::cases
