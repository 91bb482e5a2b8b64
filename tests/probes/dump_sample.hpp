// Small dumps for the tests, and HDF5 calls that damage them.
#pragma once
#include "h3diff/probes/dump.hpp"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include <unistd.h>

namespace h3diff::probes::sample {

// A folder that goes away with the test.
class Folder {
public:
  Folder() : path_(std::filesystem::temp_directory_path() / ("h3diff-test-XXXXXX")) {
    std::string name = path_.string();
    if (mkdtemp(name.data()) == nullptr)
      throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name) const { return (path_ / name).string(); }

private:
  std::filesystem::path path_;
};

inline RunFacts facts() {
  RunFacts out = shape_facts(ModelShape{});
  out["producer"] = std::string("h3diff test");
  out["case"] = std::string("tiny");
  out["seed"] = std::int64_t{7};
  out["mkl_cbwr"] = std::string();
  return out;
}

// A value that depends on all of its arguments.
inline double value(int step, int row, int which) { return std::sin(1.0 + step * 17.0 + row * 3.0 + which * 0.7); }

inline std::vector<double> sketch_of(int step, int row, int k) {
  std::vector<double> buckets(static_cast<std::size_t>(k));
  for (int b = 0; b < k; ++b)
    buckets[static_cast<std::size_t>(b)] = value(step, row, b);
  return buckets;
}

inline std::vector<float> elements(int step, std::int64_t rows, std::int64_t cols) {
  std::vector<float> out(static_cast<std::size_t>(rows * cols));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(value(step, 5, static_cast<int>(i)));
  return out;
}

inline IndexRow row(int step, int number, const std::string& probe, Segment segment, std::int64_t rows,
                    std::int64_t cols) {
  IndexRow out;
  out.step = step;
  out.probe = probe;
  out.segment = segment;
  out.dtype = DType::bfloat16;
  out.stored_dtype = DType::float32;
  out.rows = rows;
  out.cols = cols;
  out.digest = {static_cast<std::uint64_t>(step + 2) * 0x123456789ABCDEFULL, static_cast<std::uint64_t>(number)};
  Statistics& s = out.statistics;
  s.count = rows * cols;
  s.zeros = number % 3;
  s.nan = number % 2;
  s.inf = 1;
  s.subnormal = 2;
  s.mean = value(step, number, 0);
  s.std = value(step, number, 1);
  s.l2 = value(step, number, 2);
  s.min = value(step, number, 3);
  s.max = value(step, number, 4);
  s.absmax = value(step, number, 5);
  s.absmax_row = number % 2;
  s.absmax_col = 3;
  for (std::size_t i = 0; i < 16; ++i) {
    s.row_bands[i] = static_cast<float>(value(step, number, static_cast<int>(i) + 10));
    s.col_groups[i] = static_cast<float>(value(step, number, static_cast<int>(i) + 30));
  }
  if (probe.starts_with("pred."))
    out.cosine = value(step, number, 6);
  return out;
}

constexpr std::int64_t tensor_rows = 4, tensor_cols = 6;

// What one step of the sample adds: `rows` index rows, the first of which has a full tensor.
inline Result<void> add_step(DumpWriter& writer, int step, int rows = 3, int k = 64, bool tensor = true) {
  for (int i = 0; i < rows; ++i) {
    IndexRow out = row(step, i, "probe." + std::to_string(i), Segment::video, tensor_rows, tensor_cols);
    out.level = i == 0 && tensor ? Level::full : Level::stats;
    writer.add(out, k > 0 ? sketch_of(step, i, k) : std::vector<double>());
  }
  if (tensor) {
    const std::vector<float> data = elements(step, tensor_rows, tensor_cols);
    const RowRange all[] = {{0, tensor_rows}};
    if (auto ok = writer.add_tensor(step, "probe.0", Segment::video,
                                    TensorView::contiguous(data.data(), DType::float32, tensor_rows, tensor_cols), all);
        !ok)
      return ok;
  }
  return writer.end_step({step, 1.0 - 0.1 * step, 0.9, 0.8, 0.7});
}

inline std::vector<ColumnMeasurement> columns(int count) {
  std::vector<ColumnMeasurement> out;
  for (int i = 0; i < count; ++i) {
    ColumnMeasurement& column = out.emplace_back();
    column.column = i;
    column.digest = {static_cast<std::uint64_t>(i), 99};
    column.zeros = i;
    column.mean = value(0, i, 1);
    column.l2 = value(0, i, 2);
  }
  return out;
}

inline void add_weights(DumpWriter& writer) {
  writer.add(row(-1, 0, "weights.adaln_t_table", Segment::all, 9, 5), sketch_of(-1, 0, 256));
  writer.add_columns("weights.adaln_t_table", columns(5));
}

// A finished dump of `steps` steps.
inline Result<void> write(const std::string& path, int steps = 2) {
  auto writer = DumpWriter::create({path, true}, facts());
  if (!writer)
    return writer.error();
  add_weights(*writer);
  if (auto ok = writer->end_step({-1}); !ok)
    return ok;
  for (int step = 0; step < steps; ++step)
    if (auto ok = add_step(*writer, step); !ok)
      return ok;
  const DispatchRow dispatch[] = {{"linear", "aten", "aten", 12, 0}, {"attention", "math", "flash", 4, 4}};
  const Unobserved unobserved[] = {{"blocks.*.attn.q_rope", "fused"}};
  return writer->finish(dispatch, unobserved);
}

// Empty if the dump holds what add_step wrote for steps 0..steps-1 (and perhaps more), else the first difference.
inline std::string difference(const DumpReader& dump, int steps, int rows = 3) {
  if (static_cast<int>(dump.steps().size()) < steps)
    return "only " + std::to_string(dump.steps().size()) + " steps";
  int found = 0;
  for (const IndexRow& got : dump.index()) {
    if (got.step < 0 || got.step >= steps)
      continue;
    const int i = std::stoi(got.probe.substr(6));
    const IndexRow want = row(got.step, i, got.probe, Segment::video, tensor_rows, tensor_cols);
    if (!(got.digest == want.digest) || got.statistics.mean != want.statistics.mean)
      return "row " + got.probe;
    const auto sketch = dump.sketch(got);
    if (!sketch)
      return sketch.error().message;
    const auto expected = sketch_of(got.step, i, got.sketch_k);
    for (std::size_t b = 0; b < sketch->size(); ++b)
      if ((*sketch)[b] != static_cast<float>(expected[b]))
        return "sketch of " + got.probe;
    if (got.level == Level::full) {
      const auto tensor = dump.tensor(got);
      if (!tensor)
        return tensor.error().message;
      std::vector<float> data(static_cast<std::size_t>(tensor_rows * tensor_cols));
      if (auto ok = (*tensor)->read_rows(0, tensor_rows, data.data()); !ok)
        return ok.error().message;
      if (data != elements(got.step, tensor_rows, tensor_cols))
        return "tensor of " + got.probe;
    }
    ++found;
  }
  return found == steps * rows ? "" : std::to_string(found) + " rows";
}

inline std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void put_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

} // namespace h3diff::probes::sample
