// One pass over a segment: each tile is brought into the first-level cache once, where digest, statistics and
// sketch kernels run over it. Work is cut into tasks by shape alone and tasks' results are combined in order, so
// that neither the number of threads nor the instruction set shows in a result.
#include "h3diff/probes/measure.hpp"
#include "digest_total.hpp"
#include "measure_columns.hpp"
#include "measure_moments.hpp"
#include "measure_sketch.hpp"
#include "measure_threads.hpp"
#include "measure_tile.hpp"
#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

namespace h3diff::probes {
namespace {

using namespace kernels;

constexpr std::int64_t task_elements = std::int64_t{1} << 17;
constexpr std::int64_t most_tasks = 256; // along each of rows and columns
constexpr std::int64_t widest_task = std::int64_t{1} << 16;
constexpr std::int64_t thread_elements = std::int64_t{1} << 18; // below, threads cost more than they save

constexpr std::int64_t divide_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

// Which of the 16 bands or groups, floor(b * size / 16) to floor((b + 1) * size / 16), holds `index`.
constexpr std::size_t sixteenth(std::int64_t index, std::int64_t size) {
  return static_cast<std::size_t>((16 * index + 15) / size);
}

double sum_lanes(const double* v) { return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7])); }

struct Grid {
  std::int64_t rows = 0, cols = 0;
  std::int64_t task_rows = 8, task_cols = tile_cols; // multiples of 8 and of tile_cols
  std::int64_t row_tasks = 0, col_tasks = 0;

  Grid(std::int64_t r, std::int64_t c) : rows(r), cols(c) {
    if (rows <= 0 || cols <= 0)
      return;
    task_cols = divide_up(std::max(std::min(cols, widest_task), divide_up(cols, most_tasks)), tile_cols) * tile_cols;
    col_tasks = divide_up(cols, task_cols);
    const std::int64_t enough = divide_up(task_elements, std::min(cols, task_cols));
    task_rows = divide_up(std::max(enough, divide_up(rows, most_tasks)), 8) * 8;
    row_tasks = divide_up(rows, task_rows);
  }
  std::int64_t tasks() const { return row_tasks * col_tasks; }
};

struct Partial {
  Digest digest;
  std::int64_t zeros = 0, nan = 0, inf = 0, subnormal = 0;
  double min = std::numeric_limits<double>::infinity(), max = -min;
  double absmax = -1;
  std::int64_t absmax_row = -1, absmax_col = -1;
  Moments moments;
  std::array<double, 16> bands{}, groups{};
  Sketch sketch{};

  void offer_absmax(double value, std::int64_t row, std::int64_t col) {
    const bool earlier = row < absmax_row || (row == absmax_row && col < absmax_col);
    if (value < absmax || (value == absmax && !earlier))
      return;
    absmax = value;
    absmax_row = row;
    absmax_col = col;
  }

  void add(const Partial& other) {
    digest.a += other.digest.a;
    digest.b += other.digest.b;
    zeros += other.zeros;
    nan += other.nan;
    inf += other.inf;
    subnormal += other.subnormal;
    min = std::min(min, other.min);
    max = std::max(max, other.max);
    if (other.absmax >= 0)
      offer_absmax(other.absmax, other.absmax_row, other.absmax_col);
    moments.add(other.moments);
    for (std::size_t i = 0; i < 16; ++i) {
      bands[i] += other.bands[i];
      groups[i] += other.groups[i];
    }
    for (std::size_t i = 0; i < sketch.size(); ++i)
      sketch[i] += other.sketch[i];
  }
};

struct Workspace {
  TileBuffer raw, wide, clean;
  SketchSums sketch;
  GroupSums groups;
  RowSums rows;
  std::vector<Run> runs;
  std::vector<std::size_t> tile_runs; // runs of tile i: [tile_runs[i], tile_runs[i + 1])
};

// Cuts the units of a tile where the column group changes.
void add_runs(std::int64_t first_col, int cols, std::int64_t all_cols, std::vector<Run>& runs) {
  const std::size_t first_run = runs.size();
  const int units = static_cast<int>(divide_up(cols, lanes));
  std::size_t group = sixteenth(first_col, all_cols);
  const auto advance = [&](std::int64_t col) { // columns beyond the last count to the last group
    while (group < 15 && col >= static_cast<std::int64_t>(group + 1) * all_cols / 16)
      ++group;
    return static_cast<std::uint8_t>(group);
  };
  for (int unit = 0; unit < units; ++unit) {
    const std::int64_t col = first_col + unit * lanes;
    Run run{};
    run.begin = unit;
    run.end = unit + 1;
    for (int lane = 0; lane < lanes; ++lane)
      run.group[lane] = advance(col + lane);
    run.uniform = run.group[0] == run.group[lanes - 1];
    if (run.uniform && runs.size() > first_run && runs.back().uniform && runs.back().group[0] == run.group[0])
      runs.back().end = unit + 1;
    else
      runs.push_back(run);
  }
}

class Measurer {
public:
  Measurer(const SegmentReader& reader, DType dtype, const MeasureOptions& options)
      : reader_(reader), dtype_(dtype), statistics_(options.statistics),
        sketch_(options.statistics && options.sketch_k > 0), as_double_(sums_as_double(dtype)),
        threshold_(small_threshold(dtype)), grid_(reader.rows(), reader.cols()), table_(table()) {}

  Partial run(int threads) {
    if (grid_.rows * grid_.cols < thread_elements)
      threads = 1;
    threads = static_cast<int>(std::clamp<std::int64_t>(grid_.tasks(), 1, std::max(threads, 1)));
    std::vector<std::unique_ptr<Workspace>> workspaces;
    for (int i = 0; i < threads; ++i)
      workspaces.push_back(std::make_unique<Workspace>());
    std::vector<Partial> partials(static_cast<std::size_t>(grid_.tasks()));
    for_each_task(grid_.tasks(), threads, [&](int worker, std::int64_t task) {
      run_task(task, *workspaces[static_cast<std::size_t>(worker)], partials[static_cast<std::size_t>(task)]);
    });
    Partial total;
    for (const Partial& partial : partials)
      total.add(partial);
    return total;
  }

private:
  void run_task(std::int64_t task, Workspace& work, Partial& out) const {
    const std::int64_t row_begin = task / grid_.col_tasks * grid_.task_rows;
    const std::int64_t row_end = std::min(row_begin + grid_.task_rows, grid_.rows);
    const std::int64_t col_begin = task % grid_.col_tasks * grid_.task_cols;
    const std::int64_t col_end = std::min(col_begin + grid_.task_cols, grid_.cols);
    if (statistics_) {
      work.runs.clear();
      work.tile_runs.assign(1, 0);
      for (std::int64_t col = col_begin; col < col_end; col += tile_cols) {
        add_runs(col, static_cast<int>(std::min<std::int64_t>(tile_cols, col_end - col)), grid_.cols, work.runs);
        work.tile_runs.push_back(work.runs.size());
      }
      work.groups = {};
      if (sketch_)
        work.sketch = {};
    }
    for (std::int64_t row = row_begin; row < row_end; row += block_rows) {
      const int rows = static_cast<int>(std::min<std::int64_t>(block_rows, row_end - row));
      const std::byte* start[block_rows] = {};
      for (int r = 0; r < rows; ++r)
        start[r] = reader_.row(row + r);
      const std::byte* next = row + block_rows < row_end ? reader_.row(row + block_rows) : nullptr;
      const std::size_t first_band = sixteenth(row, grid_.rows), last_band = sixteenth(row + rows - 1, grid_.rows);
      work.rows = {};
      for (std::int64_t col = col_begin; col < col_end; col += tile_cols) {
        const int cols = static_cast<int>(std::min<std::int64_t>(tile_cols, col_end - col));
        const Rows raw = raw_tile(reader_, start, rows, col, cols, work.raw);
        if (next != nullptr)
          reader_.prefetch(next, rows, col, cols);
        digest_tile(raw, row, col, cols, out);
        if (!statistics_)
          continue;
        const double squares = sum_tile(raw, row, rows, col, cols, col_begin, first_band != last_band, work, out);
        if (first_band == last_band)
          out.bands[first_band] += squares;
      }
      if (statistics_ && first_band != last_band)
        for (int r = 0; r < rows; ++r)
          out.bands[sixteenth(row + r, grid_.rows)] += sum_lanes(work.rows.row[r]);
    }
    if (statistics_)
      for (std::size_t g = 0; g < 16; ++g)
        out.groups[g] = sum_lanes(work.groups.group[g]);
    if (sketch_)
      add_rotated(work.sketch, out.sketch);
  }

  void digest_tile(const Rows& raw, std::int64_t row, std::int64_t col, int cols, Partial& out) const {
    const auto item = static_cast<std::int64_t>(reader_.item());
    const std::int64_t unit = row / block_rows * divide_up(grid_.cols * item, 16) + col * item / 16;
    table_.digest(raw, divide_up(cols * item, 16), static_cast<std::uint32_t>(unit), out.digest.a, out.digest.b);
  }

  // Returns the sum of squares; per row it goes to work.rows if asked for.
  double sum_tile(const Rows& raw, std::int64_t row, int rows, std::int64_t col, int cols, std::int64_t col_begin,
                  bool per_row, Workspace& work, Partial& out) const {
    const Rows wide = widened_tile(table_, dtype_, raw, cols, work.wide);
    Rows values = wide;
    std::int64_t finite = std::int64_t{rows} * cols;
    Scan scan = table_.scan[as_double_](wide, rows, cols, threshold_);
    if (scan.nonfinite) {
      values = clean_tile(wide, rows, cols, work.clean, scan, finite, out);
    } else if (scan.small) {
      const SmallCounts counts = table_.count_small[as_double_](wide, rows, cols, threshold_);
      out.zeros += counts.zeros;
      out.subnormal += counts.subnormal;
    }
    if (finite > 0) {
      out.min = std::min(out.min, scan.min);
      out.max = std::max(out.max, scan.max);
      const double absmax = std::max(std::fabs(scan.min), std::fabs(scan.max));
      // An equal one in an earlier row of this block may stand in a later tile.
      if (absmax > out.absmax || (absmax == out.absmax && out.absmax_row > row))
        find_absmax(wide, row, rows, col, cols, absmax, out);
    }
    const std::size_t tile = static_cast<std::size_t>((col - col_begin) / tile_cols);
    const Run* runs = work.runs.data() + work.tile_runs[tile];
    const int run_count = static_cast<int>(work.tile_runs[tile + 1] - work.tile_runs[tile]);
    TileSums sums;
    if (sketch_) {
      std::uint32_t signs[tile_units];
      const auto first_unit = static_cast<std::uint32_t>(col / lanes);
      table_.sign_words(sign_row_key(row), first_unit, static_cast<int>(divide_up(cols, lanes)), signs);
      SketchTile sketch{};
      sketch.sums = &work.sketch;
      sketch.first_turn = static_cast<int>(row % 8);
      sketch.signs = signs;
      const std::int64_t turn = turn_rows(grid_.rows);
      sketch.one_turn = turn > 1; // a block never crosses a multiple of 8
      for (int r = 0; r < (sketch.one_turn ? 1 : block_rows); ++r)
        for (int panel = 0; panel < tile_units / panel_units; ++panel)
          sketch.turn[r][panel] = sketch_turn((row + r) / turn, col / 256 + panel);
      table_.accumulate_sketch[as_double_](values, runs, run_count, work.groups, sums, sketch);
    } else {
      table_.accumulate[as_double_](values, runs, run_count, work.groups, sums);
    }
    if (per_row)
      table_.row_squares[as_double_](values, static_cast<int>(divide_up(cols, lanes)), work.rows);
    const double squares = sum_lanes(sums.square);
    out.moments.add(piece_moments(finite, sum_lanes(sums.value), squares, [&](double mean) {
      DeviationSum deviations(mean);
      for (int r = 0; r < rows; ++r)
        for (int c = 0; c < cols; ++c)
          if (const double x = element(as_double_, wide.row[r], c); std::isfinite(x))
            deviations.add(x);
      return deviations.value();
    }));
    return squares;
  }

  // A copy in which what is not finite is zero; does the whole scan again over the finite elements.
  Rows clean_tile(const Rows& wide, int rows, int cols, TileBuffer& buffer, Scan& scan, std::int64_t& finite,
                  Partial& out) const {
    const std::size_t size = as_double_ ? 8 : 4;
    const double normal = smallest_normal(dtype_);
    Rows clean{};
    scan.min = std::numeric_limits<double>::infinity();
    scan.max = -scan.min;
    finite = 0;
    for (int r = 0; r < block_rows; ++r) {
      clean.row[r] = buffer.row[r];
      std::memcpy(buffer.row[r], wide.row[r], static_cast<std::size_t>(divide_up(cols, lanes)) * lanes * size);
      for (int c = 0; r < rows && c < cols; ++c) {
        const double x = element(as_double_, wide.row[r], c);
        if (std::isfinite(x)) {
          ++finite;
          scan.min = std::min(scan.min, x);
          scan.max = std::max(scan.max, x);
          out.zeros += x == 0;
          out.subnormal += x != 0 && std::fabs(x) < normal;
        } else {
          (std::isnan(x) ? out.nan : out.inf) += 1;
          std::memset(buffer.row[r] + static_cast<std::size_t>(c) * size, 0, size);
        }
      }
    }
    return clean;
  }

  void find_absmax(const Rows& wide, std::int64_t row, int rows, std::int64_t col, int cols, double absmax,
                   Partial& out) const {
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < cols; ++c)
        if (std::fabs(element(as_double_, wide.row[r], c)) == absmax)
          return out.offer_absmax(absmax, row + r, col + c);
  }

  const SegmentReader& reader_;
  DType dtype_;
  bool statistics_, sketch_, as_double_;
  std::uint64_t threshold_;
  Grid grid_;
  const Table& table_;
};

Statistics statistics_of(const Partial& total, std::int64_t elements) {
  Statistics out;
  out.count = elements;
  out.zeros = total.zeros;
  out.nan = total.nan;
  out.inf = total.inf;
  out.subnormal = total.subnormal;
  double squares = 0;
  for (std::size_t i = 0; i < 16; ++i) {
    squares += total.bands[i];
    out.row_bands[i] = static_cast<float>(std::sqrt(total.bands[i]));
    out.col_groups[i] = static_cast<float>(std::sqrt(total.groups[i]));
  }
  out.l2 = std::sqrt(squares);
  if (total.moments.count == 0)
    return out;
  const auto n = static_cast<double>(total.moments.count);
  out.mean = total.moments.sum / n;
  out.std = std::isfinite(squares) ? std::sqrt(total.moments.deviations / n) : out.l2;
  out.min = total.min + 0.0; // one zero, not two
  out.max = total.max + 0.0;
  out.absmax = total.absmax;
  out.absmax_row = total.absmax_row;
  out.absmax_col = total.absmax_col;
  return out;
}

} // namespace

Measurement measure(const TensorView& view, std::span<const RowRange> ranges, const MeasureOptions& options) {
  const DefaultRounding rounding;
  const SegmentReader reader(view, ranges);
  const Partial total = Measurer(reader, view.dtype, options).run(options.threads);
  Measurement out;
  out.rows = reader.rows();
  out.cols = reader.cols();
  out.digest = with_shape(total.digest, out.rows, out.cols * static_cast<std::int64_t>(reader.item()));
  if (options.statistics) {
    out.statistics = statistics_of(total, out.rows * out.cols);
    if (options.sketch_k > 0)
      out.sketch = folded<double>(total.sketch, static_cast<std::size_t>(options.sketch_k));
  }
  if (options.columns)
    out.columns = measure_columns(reader, view.dtype, options.threads);
  return out;
}

} // namespace h3diff::probes
