// The dump: docs/dump-format.md. Writer and reader over the HDF5 C API.
#pragma once
#include "h3diff/probes/capture.hpp"
#include "h3diff/probes/graph.hpp"
#include "h3diff/probes/measure.hpp"
#include "h3diff/probes/result.hpp"
#include <map>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace h3diff::probes {

using Fact = std::variant<std::string, std::int64_t, double>;
using RunFacts = std::map<std::string, Fact>; // names: docs/dump-format.md section 3

RunFacts shape_facts(const ModelShape&);
Result<ModelShape> shape_from_facts(const RunFacts&); // bad_input naming the missing fact (no file name)

struct DispatchRow {
  std::string op, implementation, declared;
  std::int64_t calls = 0, fallbacks = 0;
};
struct StepRow {
  std::int32_t step = 0;
  double sigma_video = 0, sigma_audio = 0, sigma_video_next = 0, sigma_audio_next = 0;
};
struct Unobserved {
  std::string probe, reason; // probe: a name or a glob
};

struct IndexRow {
  std::int32_t step = 0;
  std::string probe;
  Segment segment = Segment::all;
  DType dtype = DType::float32, stored_dtype = DType::float32;
  std::int64_t rows = 0, cols = 0;
  Digest digest;
  Level level = Level::stats;
  Statistics statistics;
  double cosine = Statistics::undefined;
  int sketch_k = 0;
  std::int64_t sketch_row = -1;
};

// Appends to PATH.partial; finish() renames to PATH. A writer destroyed before finish() leaves the .partial file.
// At every moment, also in the middle of end_step and also after SIGKILL or on a full disk, that file is valid HDF5
// in which every step that was ended is readable (src/commit_file.hpp). A .partial file that a dead run left is
// overwritten; one that another live writer has open is a usage error. A failed write is an environment error that
// names the file; later calls repeat it and leave the disk alone.
class DumpWriter {
public:
  struct Options {
    std::string path;
    bool overwrite = false; // else an existing PATH is a usage error
  };
  static Result<DumpWriter> create(const Options&, const RunFacts&);
  DumpWriter(DumpWriter&&) noexcept;
  DumpWriter& operator=(DumpWriter&&) noexcept;
  ~DumpWriter();

  // Sketch k and row follow from `sketch` (empty, or 64, 128 or 256 buckets). Rows are held in memory until end_step.
  void add(IndexRow row, std::span<const double> sketch);
  void add_columns(const std::string& probe, std::span<const ColumnMeasurement>);
  // Writes a segment's tensor now (step, probe and segment name it). sample_rows > 0: level `rows`.
  Result<void> add_tensor(std::int32_t step, const std::string& probe, Segment, const TensorView&,
                          std::span<const RowRange>, std::int64_t sample_rows = 0);
  // Appends and flushes everything held. Step -1 (weights) gets no row in /steps. An error of ours in a call that
  // returns nothing (a probe name longer than 80 bytes) is told here.
  Result<void> end_step(const StepRow&);
  void set_fact(const std::string& name, Fact); // reaches the file with the next end_step or finish
  // Rows of a step that was not ended are dropped. An existing PATH is replaced only with `overwrite`.
  // `ended` false: of a run that is known to have been cut off; `finished` stays 0.
  Result<void> finish(std::span<const DispatchRow>, std::span<const Unobserved> = {}, bool ended = true);
  const std::string& partial_path() const;

private:
  struct Impl;
  explicit DumpWriter(std::unique_ptr<Impl>);
  std::unique_ptr<Impl> impl_;
};

// Reads rows of one captured tensor straight from the file; holds no tensor in memory.
class StoredTensor {
public:
  DType dtype = DType::float32;
  std::int64_t rows = 0, cols = 0;
  std::int64_t sampled_of = 0; // > 0: sampled rows of a segment with that many rows
  // Copies rows [begin, begin + count) into `out` (count * cols * item_size bytes), with pread.
  Result<void> read_rows(std::int64_t begin, std::int64_t count, void* out) const;

private:
  friend class DumpReader;
  int fd_ = -1; // the reader's own, borrowed
  std::uint64_t offset_ = 0;
  std::string label_;
};

class DumpReader {
public:
  // Checks everything that docs/dump-format.md promises (format, version, columns, dtypes, shapes, links,
  // storage, filters, sizes against the file's size, uniqueness, known names) before any tensor is read.
  // Failure: bad_input with one sentence that names the file and the fact.
  //
  // HDF5 parses the file in a forked child process, which hands over the tables in memory: libhdf5 crashes, loops or
  // exhausts memory on some damaged files (it did on 1 in 100 of flipped metadata bytes, 1.10.8), and no check
  // beforehand can tell. Such a file costs the child, under a limit on CPU time and memory, and the caller gets an
  // Error. The caller's process makes no HDF5 call at all; sketches are read from that memory, tensors with pread.
  static Result<DumpReader> open(const std::string& path);
  DumpReader(DumpReader&&) noexcept;
  DumpReader& operator=(DumpReader&&) noexcept;
  ~DumpReader();

  const std::string& path() const;
  const RunFacts& facts() const;
  std::string fact(const std::string& name, const std::string& otherwise = "") const; // as text
  bool finished() const;
  const std::vector<IndexRow>& index() const; // rows of complete steps, in execution order
  const std::vector<StepRow>& steps() const;
  const std::vector<DispatchRow>& dispatch() const;
  const std::vector<Unobserved>& unobserved() const;
  std::vector<ColumnMeasurement> columns(const std::string& probe) const; // empty if none
  Result<std::vector<float>> sketch(const IndexRow&) const;               // empty if the row has none
  // nullopt if that row has no tensor.
  Result<std::optional<StoredTensor>> tensor(const IndexRow&) const;

private:
  struct Impl;
  explicit DumpReader(std::unique_ptr<Impl>);
  std::unique_ptr<Impl> impl_;
};

bool is_hdf5(const std::string& path);

// Text from a stranger's file, safe to print: control and non-ASCII bytes as \xNN, cut at `limit`.
std::string printable(std::string_view text, std::size_t limit = 120);

} // namespace h3diff::probes
