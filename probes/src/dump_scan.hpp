// What libhdf5 has to say about a dump, handed from the child process that asks it (guarded.hpp) to the reader
// that judges it. The child checks what only HDF5 can tell: links, types, layouts, filters, sizes. The meaning of
// the rows is checked by the reader (dump_reader.cpp), which never calls HDF5.
//
// The hand-over is a sequence of sections: tag (u32), size (u64), bytes. It ends with `done` or `error`.
#pragma once
#include "dump_tables.hpp"
#include "h3diff/probes/dump.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace h3diff::probes {

enum class Section : std::uint32_t {
  done = 1,
  error,   // the sentence
  facts,   // see encode_facts (scan_transfer.hpp)
  index,   // IndexRecord...
  columns, // ColumnRecord...
  dispatch,
  steps,
  unobserved,
  tensors,  // TensorRecord...
  sketch64, // float32...
  sketch128,
  sketch256,
};

// A dataset below /tensors.
struct TensorRecord {
  std::int32_t step;
  char probe[80];
  char segment[12];
  char dtype[16];
  std::int64_t rows, cols;
  std::int64_t sampled_of; // 0: none
  std::uint64_t offset;    // of the first byte in the file
};

// Runs in the child. `fd` is the file, `size` its length, `path` its name for messages.
void scan_dump(int fd, std::uint64_t size, const std::string& path, int out);

} // namespace h3diff::probes
