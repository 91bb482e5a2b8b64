// The tables of a dump (docs/dump-format.md sections 2, 4 and 5): one record struct and one column list each,
// from which the HDF5 types are built and against which a file's types are checked.
#pragma once
#include "h3diff/probes/dtype.hpp"
#include "hdf5_handle.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace h3diff::probes {

struct IndexRecord {
  std::int32_t step;
  char probe[80];
  char segment[12];
  char dtype[16];
  char stored_dtype[16];
  std::int64_t rows, cols;
  char digest[32];
  char level[8];
  std::int64_t zeros, nan, inf, subnormal;
  double mean, std, l2, min, max, absmax;
  std::int64_t absmax_row, absmax_col;
  double cosine;
  float row_bands[16], col_groups[16];
  std::int32_t sketch_k;
  std::int64_t sketch_row;
};

struct ColumnRecord {
  char probe[80];
  std::int32_t column;
  char digest[32];
  std::int64_t zeros, nan, inf;
  double mean, std, l2, min, max, absmax;
};

struct DispatchRecord {
  char op[32];
  char implementation[64];
  char declared[64];
  std::int64_t calls, fallbacks;
};

struct StepRecord {
  std::int32_t step;
  double sigma_video, sigma_audio, sigma_video_next, sigma_audio_next;
};

struct UnobservedRecord {
  char probe[80];
  char reason[160];
};

enum class ColumnKind : std::uint8_t { text, int32, int64, float64, float32x16 };

struct TableColumn {
  const char* name;
  ColumnKind kind;
  std::size_t size;   // bytes in the record
  std::size_t offset; // in the record
};

struct TableLayout {
  const char* path;
  std::span<const TableColumn> columns;
  std::size_t record_size;
  hsize_t chunk_rows; // of what we write
};

extern const TableLayout index_table, column_table, dispatch_table, step_table, unobserved_table;

// Sketch tables /sketches/k64, k128, k256: float32 [n, k].
inline constexpr int sketch_sizes[] = {64, 128, 256};
inline constexpr hsize_t sketch_chunk_rows = 64;

// Compound type with the record's own offsets (for memory) or packed (for files).
Handle table_type(const TableLayout&, bool packed);

// The HDF5 type of a captured tensor's elements, section 6.
Handle element_type(DType);

// Text of a fixed-length field, without its padding.
std::string_view field_text(const char* field, std::size_t size);

template <std::size_t N> std::string_view field_text(const char (&field)[N]) { return field_text(field, N); }

// Copies into a zeroed field; false if it does not fit.
bool set_field(char* field, std::size_t size, std::string_view text);

template <std::size_t N> bool set_field(char (&field)[N], std::string_view text) { return set_field(field, N, text); }

} // namespace h3diff::probes
