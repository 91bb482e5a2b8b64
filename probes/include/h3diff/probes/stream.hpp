// The probe stream: docs/stream-format.md. What a foreign runtime wrote through h3diff/h3diff_probe.h (or by itself),
// as the same data that a DumpReader gives, and as a dump.
#pragma once
#include "h3diff/probes/dump.hpp"
#include "h3diff/probes/result.hpp"
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace h3diff::probes {

// Why reading ended before the end of the file. Everything before `offset` was used.
struct StreamDamage {
  std::uint64_t offset = 0; // of the first record that is damaged or incomplete
  std::uint64_t bytes = 0;  // ignored, from there to the end of the file
  std::string reason;       // "its CRC does not match"
};

// Rows of one captured tensor, read from the file when asked for.
class StreamTensor {
public:
  DType dtype = DType::float32;
  std::int64_t rows = 0, cols = 0;
  std::int64_t sampled_of = 0; // > 0: sampled rows of a segment with that many rows
  // Copies rows [begin, begin + count) into `out` (count * cols * item_size bytes).
  Result<void> read_rows(std::int64_t begin, std::int64_t count, void* out) const;

private:
  friend class StreamReader;
  struct Piece {
    std::int64_t first = 0, rows = 0;
    std::uint64_t offset = 0;
  };
  std::vector<Piece> pieces_;
  int fd_ = -1; // the reader's own, borrowed
  std::string label_;
};

class StreamReader {
public:
  // Reads and checks every record; sketches and tensors stay in the file. A damaged or missing end is no failure, see
  // damage(). bad_input for a file that is no stream, is cut within its header, or holds a record that has a right CRC
  // and a wrong content.
  static Result<StreamReader> open(const std::string& path);
  StreamReader(StreamReader&&) noexcept;
  StreamReader& operator=(StreamReader&&) noexcept;
  ~StreamReader();

  const std::string& path() const;
  const RunFacts& facts() const;
  std::string fact(const std::string& name, const std::string& otherwise = "") const; // as text
  bool finished() const;                                                              // the end record is there
  const std::vector<IndexRow>& index() const; // weights, and rows of complete steps, in the stream's order
  const std::vector<StepRow>& steps() const;
  const std::vector<DispatchRow>& dispatch() const;
  const std::vector<Unobserved>& unobserved() const;
  std::vector<std::string> column_probes() const;                         // that have all their columns
  std::vector<ColumnMeasurement> columns(const std::string& probe) const; // empty if none
  Result<std::vector<float>> sketch(const IndexRow&) const;               // empty if the row has none
  Result<std::optional<StreamTensor>> tensor(const IndexRow&) const;      // nullopt if that row has none

  const std::optional<StreamDamage>& damage() const;
  std::int64_t records() const;         // complete ones, of any tag
  std::int64_t unknown_records() const; // skipped because a later version's
  // One sentence each about what the stream lacks: its damage, steps that were cut off, a missing end.
  std::vector<std::string> notes() const;

private:
  struct Impl;
  explicit StreamReader(std::unique_ptr<Impl>);
  std::unique_ptr<Impl> impl_;
};

// True if the file begins with a stream's magic.
bool is_stream(const std::string& path);

struct StreamToDumpOptions {
  bool overwrite = false;
  RunFacts facts; // added to the stream's, and stronger: what the person who imports knows
};

struct StreamImport {
  std::int64_t rows = 0, steps = 0;
  bool finished = false;
  std::vector<std::string> notes; // StreamReader::notes
};

// Writes a dump with everything that the stream holds. Incomplete steps are left out, and told in `notes`; the dump of
// a stream without an end has `finished` = 0. A captured tensor is held in memory while it is copied.
Result<StreamImport> stream_to_dump(const std::string& stream_path, const std::string& dump_path,
                                    const StreamToDumpOptions& = {});

} // namespace h3diff::probes
