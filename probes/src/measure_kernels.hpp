// Inner loops of measure(). One source (measure_kernels.inc) is compiled once per instruction set; every copy
// does the same operations in the same order, so results are bit-identical. Pieces are small enough for the
// first-level cache: a tile is 4 rows x up to 512 columns, a unit of a tile is 4 rows x 8 columns.
#pragma once
#include <cstddef>
#include <cstdint>

namespace h3diff::probes::kernels {

inline constexpr int block_rows = 4;
inline constexpr int lanes = 8; // columns of a unit; sums are kept per lane
inline constexpr int tile_cols = 512;
inline constexpr int tile_units = tile_cols / lanes;
inline constexpr int panel_units = 32; // 256 columns share one sketch rotation h

// Constants of docs/dump-format.md section 7 and 9.
inline constexpr std::uint32_t digest_pads[16] = {
    0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0, 0x082EFA98, 0xEC4E6C89,
    0x452821E6, 0x38D01377, 0xBE5466CF, 0x34E90C6C, 0xC0AC29B7, 0xC97C50DD, 0x3F84D5B5, 0xB5470917};
inline constexpr std::uint64_t digest_factor_a = 0x9E3779B97F4A7C15, digest_factor_b = 0xC2B2AE3D27D4EB4F;

constexpr std::uint32_t mix(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7FEB352Du;
  x ^= x >> 15;
  x *= 0x846CA68Bu;
  return x ^ (x >> 16);
}
constexpr std::uint32_t digest_key_x(std::uint32_t unit) { return mix(unit * 0x9E3779B1u + 0x243F6A88u); }
constexpr std::uint32_t digest_key_y(std::uint32_t x) {
  const std::uint32_t y = x * 0x9E3779B1u + 0x85A308D3u;
  return y ^ (y >> 15);
}
constexpr std::uint64_t digest_finish(std::uint64_t h, std::uint64_t factor) {
  h ^= h >> 32;
  h *= factor;
  return h ^ (h >> 32);
}

struct Rows {
  const std::byte* row[block_rows];
};

// Of the valid elements of a tile. `nonfinite`: there are NaN or infinities, and min and max mean nothing.
// `small`: some absolute value is below the threshold given.
struct Scan {
  double min, max;
  bool nonfinite, small;
};
struct SmallCounts {
  std::int64_t zeros, subnormal;
};

// Units [begin, end) of a tile whose columns all belong to one column group, or a single unit whose lanes
// belong to several.
struct Run {
  int begin, end;
  bool uniform;
  std::uint8_t group[lanes]; // of each lane
};

// Sketch buckets before rotation: acc[row mod 8][bucket mod 32][column mod 8].
struct alignas(64) SketchSums {
  double value[8][panel_units][lanes];
};
struct SketchTile {
  SketchSums* sums;
  int first_turn;                                           // row mod 8 of the first row: 0 or 4
  bool one_turn;                                            // all four rows have the same
  std::uint32_t turn[block_rows][tile_units / panel_units]; // h of each row and panel
  const std::uint32_t* signs;                               // one word per unit
};

// Sums of squares of the rows of a block and of a task's column groups; sums of one tile.
struct alignas(64) RowSums {
  double row[block_rows][lanes];
};
struct alignas(64) GroupSums {
  double group[16][lanes];
};
struct alignas(64) TileSums {
  double value[lanes], square[lanes];
};

// Of 8 columns over `rows` rows.
struct alignas(64) ColumnSums {
  double value[lanes], square[lanes], min[lanes], max[lanes];
  std::int64_t zeros[lanes];
  bool nonfinite; // then nothing else is meaningful
};

// Elements that the kernels read are float32 (index 0) or float64 (index 1); pointers need no alignment.
struct Table {
  // Adds units unit ... unit + chunks - 1; each row pointer has 16 * chunks readable bytes.
  void (*digest)(const Rows&, std::int64_t chunks, std::uint32_t unit, std::uint64_t& a, std::uint64_t& b);
  // count: a multiple of `lanes`.
  void (*bfloat16_to_float)(const std::byte*, int count, float*);
  void (*float16_to_float)(const std::byte*, int count, float*);
  void (*e4m3fn_to_float)(const std::byte*, int count, float*);
  void (*e5m2_to_float)(const std::byte*, int count, float*);
  void (*sign_words)(std::uint32_t row_key, std::uint32_t first_unit, int units, std::uint32_t* words);
  // The first `rows` rows, `cols` columns each. threshold: bits of an absolute value.
  Scan (*scan[2])(const Rows&, int rows, int cols, std::uint64_t threshold);
  SmallCounts (*count_small[2])(const Rows&, int rows, int cols, std::uint64_t threshold);
  // All four rows, whole units: what is not there or not finite must be zero.
  void (*accumulate[2])(const Rows&, const Run* runs, int run_count, GroupSums&, TileSums&);
  void (*accumulate_sketch[2])(const Rows&, const Run* runs, int run_count, GroupSums&, TileSums&, const SketchTile&);
  void (*row_squares[2])(const Rows&, int units, RowSums&); // adds
  // Columns as [rows, 1] tensors: words[row] are its elements, zero-extended to 32 bits.
  void (*digest_columns)(const std::byte* const words[block_rows], int columns, std::uint32_t unit, std::uint64_t* a,
                         std::uint64_t* b);
  void (*column_sums[2])(const std::byte* const* rows, int count, std::size_t offset_bytes, ColumnSums&);
};

enum class Isa : std::uint8_t { portable, avx2 };
const Table& table(Isa); // the best copy that this machine can run, up to the one asked for
const Table& table();    // the best copy, or the one chosen by choose_isa
bool available(Isa);
void choose_isa(Isa); // for tests: which copy table() gives from now on

} // namespace h3diff::probes::kernels
