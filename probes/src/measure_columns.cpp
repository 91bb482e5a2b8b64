// Columns are independent, so threads take strips of columns and go down all rows; nothing is combined between
// threads. A piece is 64 rows of a strip.
#include "measure_columns.hpp"
#include "digest_total.hpp"
#include "measure_moments.hpp"
#include "measure_threads.hpp"
#include "measure_tile.hpp"
#include <algorithm>
#include <cmath>
#include <memory>

namespace h3diff::probes {
namespace {

using namespace kernels;

constexpr std::int64_t strip_cols = 128;
constexpr int piece_rows = 64;

struct alignas(64) Piece {
  std::byte raw_buffer[piece_rows][strip_cols * 8];
  std::byte wide_buffer[piece_rows][strip_cols * 8];
  std::byte words[block_rows][strip_cols * 4];
  const std::byte* raw[piece_rows];
  const std::byte* wide[piece_rows];
};

struct Strip {
  std::array<std::uint64_t, strip_cols> a{}, b{};
  std::array<Moments, strip_cols> moments{};
  std::array<double, strip_cols> squares{}, min{}, max{};
  std::array<std::int64_t, strip_cols> zeros{}, nan{}, inf{};
};

class ColumnMeasurer {
public:
  ColumnMeasurer(const SegmentReader& reader, DType dtype)
      : reader_(reader), dtype_(dtype), as_double_(sums_as_double(dtype)), item_(static_cast<int>(reader.item())),
        table_(table()) {}

  void run(std::int64_t first_col, int cols, Piece& piece, std::span<ColumnMeasurement> out) const {
    Strip strip;
    strip.min.fill(std::numeric_limits<double>::infinity());
    strip.max.fill(-std::numeric_limits<double>::infinity());
    for (std::int64_t row = 0; row < reader_.rows(); row += piece_rows) {
      const int rows = static_cast<int>(std::min<std::int64_t>(piece_rows, reader_.rows() - row));
      const int wide_cols = (cols + lanes - 1) / lanes * lanes;
      const bool direct = reader_.contiguous() && cols == wide_cols;
      for (int r = 0; r < rows; ++r) {
        const std::byte* start = reader_.row(row + r);
        piece.raw[r] = direct ? start + first_col * item_ : piece.raw_buffer[r];
        if (!direct) {
          reader_.gather(start, first_col, cols, piece.raw_buffer[r]);
          std::memset(piece.raw_buffer[r] + cols * item_, 0, static_cast<std::size_t>((wide_cols - cols) * item_));
        }
      }
      if (direct) { // short pieces of far rows: the processor does not see them coming
        for (std::int64_t r = row + piece_rows; r < std::min(row + 2 * piece_rows, reader_.rows()); ++r)
          for (int byte = 0; byte < cols * item_; byte += 64)
            __builtin_prefetch(reader_.row(r) + first_col * item_ + byte, 0, 2);
      }
      digest(row, rows, cols, piece, strip);
      for (int r = 0; r < rows; ++r)
        piece.wide[r] = widened(table_, dtype_, piece.raw[r], wide_cols, piece.wide_buffer[r]);
      for (int col = 0; col < cols; col += lanes)
        sum(piece.wide, rows, col, std::min(lanes, cols - col), strip);
    }
    for (int c = 0; c < cols; ++c)
      out[static_cast<std::size_t>(c)] = result(first_col + c, static_cast<std::size_t>(c), strip);
  }

private:
  void digest(std::int64_t row, int rows, int cols, Piece& piece, Strip& strip) const {
    for (int r = 0; r < rows; r += block_rows) {
      const auto unit = static_cast<std::uint32_t>((row + r) / block_rows);
      const int present = std::min(block_rows, rows - r);
      if (item_ == 8) {
        for (int c = 0; c < cols; ++c) {
          std::byte bytes[block_rows][16] = {};
          for (int i = 0; i < present; ++i)
            std::memcpy(bytes[i], piece.raw[r + i] + c * 8, 8);
          const Rows four{{bytes[0], bytes[1], bytes[2], bytes[3]}};
          table_.digest(four, 1, unit, strip.a[static_cast<std::size_t>(c)], strip.b[static_cast<std::size_t>(c)]);
        }
        continue;
      }
      const std::byte* words[block_rows];
      for (int i = 0; i < block_rows; ++i) {
        words[i] = piece.words[i];
        if (i >= present)
          std::memset(piece.words[i], 0, sizeof piece.words[i]);
        else if (item_ == 4)
          words[i] = piece.raw[r + i];
        else if (item_ == 2)
          zero_extend<std::uint16_t>(piece.raw[r + i], cols, piece.words[i]);
        else
          zero_extend<std::uint8_t>(piece.raw[r + i], cols, piece.words[i]);
      }
      table_.digest_columns(words, cols, unit, strip.a.data(), strip.b.data());
    }
  }

  template <class T> static void zero_extend(const std::byte* raw, int cols, std::byte* words) {
    for (int c = 0; c < cols; ++c) {
      T value;
      std::memcpy(&value, raw + static_cast<std::size_t>(c) * sizeof value, sizeof value);
      const std::uint32_t word = value;
      std::memcpy(words + static_cast<std::size_t>(c) * 4, &word, 4);
    }
  }

  void sum(const std::byte* const* wide, int rows, int col, int cols, Strip& strip) const {
    ColumnSums sums;
    table_.column_sums[as_double_](wide, rows, static_cast<std::size_t>(col) * (as_double_ ? 8 : 4), sums);
    for (int l = 0; l < cols; ++l) {
      const auto c = static_cast<std::size_t>(col + l);
      std::int64_t finite = rows;
      if (sums.nonfinite)
        finite = sum_finite(wide, rows, col, l, sums, strip);
      strip.zeros[c] += sums.zeros[l];
      strip.squares[c] += sums.square[l];
      strip.min[c] = std::min(strip.min[c], sums.min[l]);
      strip.max[c] = std::max(strip.max[c], sums.max[l]);
      strip.moments[c].add(piece_moments(finite, sums.value[l], sums.square[l], [&](double mean) {
        DeviationSum deviations(mean);
        for (int r = 0; r < rows; ++r)
          if (const double x = element(as_double_, wide[r], col + l); std::isfinite(x))
            deviations.add(x);
        return deviations.value();
      }));
    }
  }

  // One column of a piece again, without what is not finite.
  std::int64_t sum_finite(const std::byte* const* wide, int rows, int col, int lane, ColumnSums& sums,
                          Strip& strip) const {
    const auto c = static_cast<std::size_t>(col + lane);
    std::int64_t finite = 0;
    sums.value[lane] = sums.square[lane] = 0;
    sums.min[lane] = std::numeric_limits<double>::infinity();
    sums.max[lane] = -sums.min[lane];
    sums.zeros[lane] = 0;
    for (int r = 0; r < rows; ++r) {
      const double x = element(as_double_, wide[r], col + lane);
      if (std::isnan(x)) {
        ++strip.nan[c];
      } else if (std::isinf(x)) {
        ++strip.inf[c];
      } else {
        ++finite;
        sums.value[lane] += x;
        sums.square[lane] += x * x;
        sums.min[lane] = std::min(sums.min[lane], x);
        sums.max[lane] = std::max(sums.max[lane], x);
        sums.zeros[lane] += x == 0;
      }
    }
    return finite;
  }

  ColumnMeasurement result(std::int64_t column, std::size_t c, const Strip& strip) const {
    ColumnMeasurement out;
    out.column = static_cast<std::int32_t>(column);
    out.digest = with_shape({strip.a[c], strip.b[c]}, reader_.rows(), item_);
    out.zeros = strip.zeros[c];
    out.nan = strip.nan[c];
    out.inf = strip.inf[c];
    out.l2 = std::sqrt(strip.squares[c]);
    const Moments& moments = strip.moments[c];
    if (moments.count == 0)
      return out;
    const auto n = static_cast<double>(moments.count);
    out.mean = moments.sum / n;
    out.std = std::isfinite(strip.squares[c]) ? std::sqrt(moments.deviations / n) : out.l2;
    out.min = strip.min[c] + 0.0;
    out.max = strip.max[c] + 0.0;
    out.absmax = std::max(std::fabs(out.min), std::fabs(out.max));
    return out;
  }

  const SegmentReader& reader_;
  DType dtype_;
  bool as_double_;
  int item_;
  const Table& table_;
};

} // namespace

std::vector<ColumnMeasurement> measure_columns(const SegmentReader& reader, DType dtype, int threads) {
  std::vector<ColumnMeasurement> out(static_cast<std::size_t>(reader.cols()));
  const std::int64_t strips = (reader.cols() + strip_cols - 1) / strip_cols;
  threads = static_cast<int>(std::clamp<std::int64_t>(strips, 1, std::max(threads, 1)));
  if (reader.rows() * reader.cols() < (std::int64_t{1} << 17))
    threads = 1;
  std::vector<std::unique_ptr<Piece>> pieces;
  for (int i = 0; i < threads; ++i)
    pieces.push_back(std::make_unique<Piece>());
  const ColumnMeasurer measurer(reader, dtype);
  for_each_task(strips, threads, [&](int worker, std::int64_t strip) {
    const std::int64_t first = strip * strip_cols;
    const auto cols = static_cast<int>(std::min(strip_cols, reader.cols() - first));
    measurer.run(first, cols, *pieces[static_cast<std::size_t>(worker)],
                 std::span(out).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(cols)));
  });
  return out;
}

} // namespace h3diff::probes
