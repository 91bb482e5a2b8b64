#include "file.hpp"
#include "h3diff/cases/import.hpp"
#include "h3diff/probes/dump.hpp"
#include "import_map.hpp"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>

namespace h3diff::cases {

using nlohmann::ordered_json;
using probes::printable;

namespace {

// A probe of one step as a whole; what its segments say, put together. None of it depends on the order of elements.
struct Known {
  std::string probe;
  int step = 0, position = 0;
  std::int64_t rows = 0, cols = 0;
  double squares = 0, absmax = 0;
  bool measured = true;
};

struct Sums {
  double l2 = 0, absmax = 0;
};

Sums sums_of(const ImportTensor& tensor) {
  double squares = 0, absmax = 0;
  const std::size_t size = probes::item_size(tensor.dtype);
  for (std::size_t at = 0; at < tensor.bytes.size(); at += size) {
    const double value = probes::to_double(tensor.dtype, tensor.bytes.data() + at);
    if (std::isfinite(value)) {
      squares += value * value;
      absmax = std::max(absmax, std::fabs(value));
    }
  }
  return {std::sqrt(squares), absmax};
}

bool near(double a, double b) { return std::fabs(a - b) <= 1e-6 * std::max(std::fabs(a), std::fabs(b)); }

std::vector<std::int64_t> without_ones(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> out;
  for (const std::int64_t size : shape)
    if (size != 1)
      out.push_back(size);
  return out;
}

class Proposer {
public:
  Proposer(const ImportSource& source, const probes::DumpReader& like, const probes::Graph& graph)
      : source_(source), graph_(graph) {
    for (const probes::IndexRow& row : like.index()) {
      if (known_.empty() || known_.back().probe != row.probe || known_.back().step != row.step)
        known_.push_back({row.probe, row.step, graph.position(row.probe), 0, row.cols, 0, 0, true});
      Known& known = known_.back();
      known.rows += row.rows;
      known.squares += row.statistics.l2 * row.statistics.l2;
      known.absmax = std::max(known.absmax, row.statistics.absmax);
      known.measured &= row.level != probes::Level::digest;
    }
  }

  Proposal operator()() {
    ordered_json tensors = ordered_json::array();
    Proposal proposal;
    for (const SourceTensor& tensor : source_.tensors) {
      if (!seen_.insert(tensor.name).second)
        continue; // the same name in a later step
      for (ordered_json& entry : guess(tensor)) {
        proposal.entries.push_back(
            {tensor.name, entry.value("probe", std::string()), entry["guess"].get<std::string>()});
        tensors.push_back(std::move(entry));
      }
    }
    const ordered_json map{{"description", "a draft: check every entry, then delete its \"guess\""},
                           {"tensors", std::move(tensors)}};
    proposal.json = map.dump(2) + "\n";
    return proposal;
  }

private:
  const ImportSource& source_;
  const probes::Graph& graph_;
  std::vector<Known> known_;
  std::set<std::string> seen_;
  int last_position_ = -1; // of the last tensor that was placed by its statistics

  static ordered_json entry(const std::string& name, const std::string& probe, const std::string& reason,
                            ordered_json transforms = ordered_json::array()) {
    ordered_json out{{"name", name}};
    if (!probe.empty())
      out["probe"] = probe;
    if (!transforms.empty())
      out["transforms"] = std::move(transforms);
    out["guess"] = reason;
    return out;
  }

  std::vector<ordered_json> guess(const SourceTensor& tensor) {
    if (graph_.find(tensor.name) != nullptr)
      return {entry(tensor.name, tensor.name, "it carries the probe's own name")};
    for (const probes::AliasTable& table : probes::builtin_aliases())
      if (const auto probe = table.canonical(tensor.name); probe && graph_.find(*probe) != nullptr)
        return {
            entry(tensor.name, *probe, fmt::format("{} calls this probe so (its map may transform it)", table.port()))};
    const ImportTensor value = ImportSource::load(tensor);
    if (auto whole = by_statistics(tensor, value, ordered_json::array(), ""); !whole.empty())
      return whole;
    if (auto parts = by_parts(tensor, value); !parts.empty())
      return parts;
    return by_shape(tensor, value);
  }

  // Probes of the tensor's step with its number of elements, its l2 and its absmax.
  std::vector<const Known*> equal(const SourceTensor& tensor, const ImportTensor& value) const {
    std::vector<const Known*> found;
    const Sums sums = sums_of(value);
    for (const Known& known : known_)
      if ((known.step == tensor.step || known.step < 0) && known.measured && sums.l2 > 0 &&
          known.rows * known.cols == value.elements() && near(std::sqrt(known.squares), sums.l2) &&
          near(known.absmax, sums.absmax))
        found.push_back(&known);
    return found;
  }

  std::vector<ordered_json> by_statistics(const SourceTensor& tensor, const ImportTensor& value,
                                          ordered_json transforms, const std::string& which) {
    auto found = equal(tensor, value);
    if (found.empty())
      return {};
    // A residual's copies look alike: the next one in execution order is the better guess.
    const auto next = std::ranges::find_if(found, [&](const Known* known) { return known->position > last_position_; });
    const Known& known = next == found.end() ? *found.front() : **next;
    last_position_ = known.position;
    const auto shape = without_ones(value.shape);
    std::string form = fmt::format("{}l2 and absmax are equal", which);
    if (shape == without_ones({known.cols, known.rows}) && known.rows != known.cols && known.rows != 1 &&
        known.cols != 1) {
      if (value.shape.size() != shape.size())
        transforms.push_back({{"op", "reshape"}, {"shape", shape}});
      transforms.push_back({{"op", "transpose"}, {"order", {1, 0}}});
      form += fmt::format(", and the shape is [{},{}] transposed", known.rows, known.cols);
    } else if (shape == without_ones({known.rows, known.cols})) {
      form += fmt::format(", and so is the shape [{},{}]", known.rows, known.cols);
    } else {
      form += fmt::format("; the shape {} is not [{},{}], so a transform may be missing", shape_text(value.shape),
                          known.rows, known.cols);
    }
    if (found.size() > 1)
      form += fmt::format("; {} other probes look the same, chosen by order", found.size() - 1);
    return {entry(tensor.name, known.probe, form, std::move(transforms))};
  }

  // Fused tensors: each of two or three equal parts along an axis is a probe.
  std::vector<ordered_json> by_parts(const SourceTensor& tensor, const ImportTensor& value) {
    for (std::size_t axis = value.shape.size(); axis-- > 0;)
      for (const std::int64_t of : {3, 2}) {
        if (value.shape[axis] == 0 || value.shape[axis] % of != 0)
          continue;
        std::vector<ordered_json> parts;
        const int before = last_position_;
        for (std::int64_t part = 0; part < of; ++part) {
          const std::int64_t length = value.shape[axis] / of;
          std::vector<std::int64_t> indices;
          for (std::int64_t i = 0; i < length; ++i)
            indices.push_back(part * length + i);
          ImportTensor piece = value;
          if (take(piece, static_cast<std::int64_t>(axis), indices))
            break;
          ordered_json transforms = ordered_json::array(
              {{{"op", "slice"}, {"axis", static_cast<std::int64_t>(axis)}, {"part", part}, {"of", of}}});
          auto found = by_statistics(tensor, piece, std::move(transforms),
                                     fmt::format("part {} of {} along axis {}: ", part, of, axis));
          if (found.empty())
            break;
          parts.push_back(std::move(found.front()));
        }
        if (parts.size() == static_cast<std::size_t>(of))
          return parts;
        last_position_ = before;
      }
    return {};
  }

  std::vector<ordered_json> by_shape(const SourceTensor& tensor, const ImportTensor& value) {
    std::vector<std::string> fitting;
    const auto shape = without_ones(value.shape);
    for (const Known& known : known_)
      if (known.step == tensor.step && shape == without_ones({known.rows, known.cols}) &&
          known.position > last_position_)
        fitting.push_back(known.probe);
    if (fitting.empty())
      return {entry(tensor.name, "", fmt::format("nothing fits its shape {} and statistics", shape_text(value.shape)))};
    std::string others;
    for (std::size_t i = 1; i < std::min<std::size_t>(fitting.size(), 4); ++i)
      others += (i == 1 ? "; so do " : ", ") + fitting[i];
    return {entry(tensor.name, fitting.front(),
                  fmt::format("weak: its shape {} fits and this probe is next in order{}{}", shape_text(value.shape),
                              others, fitting.size() > 4 ? fmt::format(" and {} more", fitting.size() - 4) : ""))};
  }
};

} // namespace

Result<Proposal> propose_map(const std::string& source_path, const std::string& like_path) {
  auto source = open_import_source(source_path);
  if (!source)
    return source.error();
  auto like = probes::DumpReader::open(like_path);
  if (!like)
    return like.error();
  const auto shape = probes::shape_from_facts(like->facts());
  if (!shape)
    return bad_input(fmt::format("{}: {}", like_path, shape.error().message));
  const probes::Graph graph(*shape);
  return Proposer(*source, *like, graph)();
}

Result<void> write_proposal(const Proposal& proposal, const std::string& path, bool overwrite) {
  if (!overwrite && (file_exists(path) || folder_exists(path)))
    return usage_error(fmt::format("{}: exists already", path));
  return write_text(path, proposal.json);
}

} // namespace h3diff::cases
