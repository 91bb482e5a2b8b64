#include "h3diff/probes/stream.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <optional>

namespace h3diff::probes {
namespace {

class Copier {
public:
  Copier(const StreamReader& from, DumpWriter& to) : from_(from), to_(to) {}

  // Rows of one step, in the stream's order.
  Result<void> rows_of(std::int32_t step) {
    for (const IndexRow& row : from_.index()) {
      if (row.step != step)
        continue;
      auto sketch = from_.sketch(row);
      if (!sketch)
        return sketch.error();
      to_.add(row, std::vector<double>(sketch->begin(), sketch->end()));
      if (auto ok = tensor_of(row); !ok)
        return ok;
    }
    return {};
  }

private:
  Result<void> tensor_of(const IndexRow& row) {
    auto stored = from_.tensor(row);
    if (!stored)
      return stored.error();
    if (!*stored)
      return {};
    const StreamTensor& tensor = **stored;
    std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.rows * tensor.cols) * item_size(tensor.dtype));
    if (auto ok = tensor.read_rows(0, tensor.rows, bytes.data()); !ok)
      return ok;
    const TensorView view = TensorView::contiguous(bytes.data(), tensor.dtype, tensor.rows, tensor.cols);
    if (tensor.sampled_of == 0) {
      const RowRange all{0, tensor.rows};
      return to_.add_tensor(row.step, row.probe, row.segment, view, {&all, 1});
    }
    // The writer samples by itself, row floor(i * sampled_of / rows) of the ranges: range i begins there with stored
    // row i. The rows behind it in the range are counted and never read.
    std::vector<RowRange> ranges;
    const auto place = [&](std::int64_t i) { return i * tensor.sampled_of / tensor.rows; };
    for (std::int64_t i = 0; i < tensor.rows; ++i)
      ranges.push_back({i, i + place(i + 1) - place(i)});
    return to_.add_tensor(row.step, row.probe, row.segment, view, ranges, tensor.rows);
  }

  const StreamReader& from_;
  DumpWriter& to_;
};

// Removes the unfinished dump when an import fails.
struct Partial {
  std::optional<DumpWriter> writer;
  bool keep = false;
  ~Partial() {
    if (!writer || keep)
      return;
    const std::string path = writer->partial_path();
    writer.reset();
    static_cast<void>(std::remove(path.c_str()));
  }
};

} // namespace

Result<StreamImport> stream_to_dump(const std::string& stream_path, const std::string& dump_path,
                                    const StreamToDumpOptions& options) {
  auto from = StreamReader::open(stream_path);
  if (!from)
    return from.error();
  RunFacts facts = from->facts();
  for (const auto& [name, fact] : options.facts)
    facts[name] = fact;
  facts.erase("finished");

  Partial partial;
  auto created = DumpWriter::create({dump_path, options.overwrite}, facts);
  if (!created)
    return created.error();
  DumpWriter& to = partial.writer.emplace(*std::move(created));

  Copier copier(*from, to);
  if (auto ok = copier.rows_of(-1); !ok)
    return ok.error();
  for (const std::string& probe : from->column_probes())
    to.add_columns(probe, from->columns(probe));
  StepRow weights;
  weights.step = -1;
  if (auto ok = to.end_step(weights); !ok)
    return ok.error();
  for (const StepRow& step : from->steps()) {
    if (auto ok = copier.rows_of(step.step); !ok)
      return ok.error();
    if (auto ok = to.end_step(step); !ok)
      return ok.error();
  }
  // A dump that its own reader refuses (a fact of the wrong type, for one) shall not come into being.
  if (auto check = DumpReader::open(to.partial_path()); !check)
    return bad_input(fmt::format("{} makes no dump: {}", stream_path, check.error().message));
  if (auto ok = to.finish(from->dispatch(), from->unobserved(), from->finished()); !ok)
    return ok.error();
  partial.keep = true;

  StreamImport out;
  out.rows = static_cast<std::int64_t>(from->index().size());
  out.steps = static_cast<std::int64_t>(from->steps().size());
  out.finished = from->finished();
  out.notes = from->notes();
  return out;
}

} // namespace h3diff::probes
