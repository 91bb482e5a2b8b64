#include "distance.hpp"
#include "convert.hpp"
#include "locate.hpp"
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>

namespace h3diff::goldens {

using probes::DType;
using probes::StoredTensor;

namespace {

constexpr std::int64_t chunk_bytes = std::int64_t{1} << 17;  // per tensor and thread: two of them stay in L2
constexpr std::int64_t longest_row = std::int64_t{32} << 20; // bytes; a longer row is not read
constexpr std::int64_t most_groups = std::int64_t{1} << 20;  // rows or columns located apart, at most

// The same code for several instruction sets. Lanes are fixed and products are not contracted, so the sums are the
// same bits in each.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define H3DIFF_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define H3DIFF_CLONES
#endif
#define H3DIFF_INLINE inline __attribute__((always_inline))

typedef double f64x4 __attribute__((vector_size(32)));
typedef float f32x4 __attribute__((vector_size(16)));
typedef std::uint32_t u32x4 __attribute__((vector_size(16)));
typedef std::uint16_t u16x4 __attribute__((vector_size(8)));

struct Float64 {
  static constexpr std::size_t size = 8;
  static H3DIFF_INLINE void four(const std::byte* at, f64x4& out) { std::memcpy(&out, at, 32); }
};
struct Float32 {
  static constexpr std::size_t size = 4;
  static H3DIFF_INLINE void four(const std::byte* at, f64x4& out) {
    f32x4 narrow;
    std::memcpy(&narrow, at, 16);
    out = __builtin_convertvector(narrow, f64x4);
  }
};
struct BFloat16 {
  static constexpr std::size_t size = 2;
  static H3DIFF_INLINE void four(const std::byte* at, f64x4& out) {
    u16x4 halves;
    std::memcpy(&halves, at, 8);
    const u32x4 words = __builtin_convertvector(halves, u32x4) << 16;
    f32x4 narrow;
    std::memcpy(&narrow, &words, 16);
    out = __builtin_convertvector(narrow, f64x4);
  }
};

struct Lanes { // four lanes, two of each: element i of a run of eight goes to lane i
  f64x4 difference[2]{}, reference[2]{}, candidate[2]{}, reference_sum[2]{}, candidate_sum[2]{};
};

H3DIFF_INLINE double total(const f64x4 (&lanes)[2]) {
  const f64x4 sum = lanes[0] + lanes[1];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

template <class A, class B>
H3DIFF_INLINE void sum_run(const std::byte* a, const std::byte* b, std::int64_t count, TensorSums& out) {
  Lanes lanes;
  const auto step = [&](const std::byte* pa, const std::byte* pb, int lane) __attribute__((always_inline)) {
    f64x4 va, vb;
    A::four(pa, va);
    B::four(pb, vb);
    const f64x4 d = va - vb;
    lanes.difference[lane] += d * d;
    lanes.reference[lane] += va * va;
    lanes.candidate[lane] += vb * vb;
    lanes.reference_sum[lane] += va;
    lanes.candidate_sum[lane] += vb;
  };
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    step(a + i * A::size, b + i * B::size, 0);
    step(a + (i + 4) * A::size, b + (i + 4) * B::size, 1);
  }
  if (i < count) { // zeros change no sum
    alignas(32) std::byte ta[8 * 8]{}, tb[8 * 8]{};
    std::memcpy(ta, a + i * A::size, static_cast<std::size_t>(count - i) * A::size);
    std::memcpy(tb, b + i * B::size, static_cast<std::size_t>(count - i) * B::size);
    step(ta, tb, 0);
    step(ta + 4 * A::size, tb + 4 * B::size, 1);
  }
  out.pairs = count;
  out.difference = total(lanes.difference);
  out.reference = total(lanes.reference);
  out.candidate = total(lanes.candidate);
  out.reference_sum = total(lanes.reference_sum);
  out.candidate_sum = total(lanes.candidate_sum);
}

H3DIFF_CLONES void sum_float32(const std::byte* a, const std::byte* b, std::int64_t n, TensorSums& out) {
  sum_run<Float32, Float32>(a, b, n, out);
}
H3DIFF_CLONES void sum_bfloat16(const std::byte* a, const std::byte* b, std::int64_t n, TensorSums& out) {
  sum_run<BFloat16, BFloat16>(a, b, n, out);
}
H3DIFF_CLONES void sum_float64(const std::byte* a, const std::byte* b, std::int64_t n, TensorSums& out) {
  sum_run<Float64, Float64>(a, b, n, out);
}

// One tile of elements converted; tiles are summed in order. Also where non-finite values are met.
constexpr std::int64_t tile = 4096;

void sum_tiles(const std::byte* a, DType da, const std::byte* b, DType db, std::int64_t count, bool careful,
               TensorSums& out) {
  double va[tile], vb[tile];
  for (std::int64_t begin = 0; begin < count; begin += tile) {
    const std::int64_t n = std::min(tile, count - begin);
    to_doubles(da, a + begin * probes::item_size(da), n, va);
    to_doubles(db, b + begin * probes::item_size(db), n, vb);
    std::int64_t left_out = 0;
    TensorSums part;
    if (careful) {
      for (std::int64_t i = 0; i < n; ++i) {
        const bool fa = std::isfinite(va[i]), fb = std::isfinite(vb[i]);
        if (fa && fb)
          continue;
        part.lost += fa && !fb;
        part.gained += fb && !fa;
        ++left_out;
        va[i] = vb[i] = 0;
      }
    }
    sum_float64(reinterpret_cast<const std::byte*>(va), reinterpret_cast<const std::byte*>(vb), n, part);
    part.pairs -= left_out;
    out.add(part);
  }
}

TensorSums sum_chunk(const std::byte* a, DType da, const std::byte* b, DType db, std::int64_t count) {
  TensorSums sums;
  sums.identical = da == db && std::memcmp(a, b, static_cast<std::size_t>(count) * probes::item_size(da)) == 0;
  const auto run = [&](bool careful) {
    TensorSums out;
    out.identical = sums.identical;
    if (!careful && da == db && da == DType::float32)
      sum_float32(a, b, count, out);
    else if (!careful && da == db && da == DType::bfloat16)
      sum_bfloat16(a, b, count, out);
    else
      sum_tiles(a, da, b, db, count, careful, out);
    return out;
  };
  sums = run(false);
  if (!std::isfinite(sums.difference) || !std::isfinite(sums.reference) || !std::isfinite(sums.candidate))
    sums = run(true);
  return sums;
}

std::int64_t rows_per_chunk(const TensorPair& pair) {
  const std::size_t item =
      std::max(probes::item_size(pair.reference_dtype()), probes::item_size(pair.candidate_dtype()));
  const std::int64_t row = pair.cols() * static_cast<std::int64_t>(item);
  return std::max<std::int64_t>(1, row > 0 ? chunk_bytes / row : 1);
}

struct Buffers {
  std::unique_ptr<std::byte[]> reference, candidate;
  Buffers(const TensorPair& pair, std::int64_t rows)
      : reference(
            new std::byte[static_cast<std::size_t>(rows * pair.cols()) * probes::item_size(pair.reference_dtype())]),
        candidate(
            new std::byte[static_cast<std::size_t>(rows * pair.cols()) * probes::item_size(pair.candidate_dtype())]) {}
};

} // namespace

std::optional<TensorPair> TensorPair::match(const StoredTensor& reference, const StoredTensor& candidate) {
  if (reference.cols != candidate.cols || reference.cols < 0 || reference.rows < 0 || candidate.rows < 0)
    return std::nullopt;
  const auto row_bytes = [](const StoredTensor& t) {
    return t.cols > longest_row ? longest_row + 1 : t.cols * static_cast<std::int64_t>(probes::item_size(t.dtype));
  };
  if (row_bytes(reference) > longest_row || row_bytes(candidate) > longest_row)
    return std::nullopt;

  const auto segment_rows = [](const StoredTensor& t) { return t.sampled_of > 0 ? t.sampled_of : t.rows; };
  if (segment_rows(reference) != segment_rows(candidate))
    return std::nullopt;
  const bool one_is_full = reference.rows == segment_rows(reference) || candidate.rows == segment_rows(candidate);
  if (reference.rows != candidate.rows && !one_is_full)
    return std::nullopt;

  TensorPair pair;
  pair.reference_ = reference;
  pair.candidate_ = candidate;
  pair.rows_ = std::min(reference.rows, candidate.rows);
  pair.segment_rows_ = segment_rows(reference);
  return pair;
}

std::int64_t TensorPair::row_of_segment(std::int64_t row) const {
  if (!sampled())
    return row;
  return row * (segment_rows_ / rows_) + row * (segment_rows_ % rows_) / rows_; // floor(row * segment_rows / rows)
}

Result<void> TensorPair::read_one(const StoredTensor& tensor, std::int64_t begin, std::int64_t count, void* out) const {
  if (tensor.rows == rows_)
    return tensor.read_rows(begin, count, out);
  const std::size_t row_bytes = static_cast<std::size_t>(tensor.cols) * probes::item_size(tensor.dtype);
  for (std::int64_t i = 0; i < count; ++i)
    if (auto read = tensor.read_rows(row_of_segment(begin + i), 1, static_cast<std::byte*>(out) + i * row_bytes); !read)
      return read.error();
  return {};
}

Result<void> TensorPair::read(std::int64_t begin, std::int64_t count, void* reference, void* candidate) const {
  if (auto read = read_one(reference_, begin, count, reference); !read)
    return read.error();
  return read_one(candidate_, begin, count, candidate);
}

void TensorSums::add(const TensorSums& other) {
  pairs += other.pairs;
  lost += other.lost;
  gained += other.gained;
  identical = identical && other.identical;
  difference += other.difference;
  reference += other.reference;
  candidate += other.candidate;
  reference_sum += other.reference_sum;
  candidate_sum += other.candidate_sum;
}

double TensorSums::rel_l2() const {
  if (pairs == 0)
    return std::numeric_limits<double>::quiet_NaN();
  if (difference == 0)
    return 0;
  return std::sqrt(difference) / std::sqrt(reference); // infinite if the reference is all zero
}

double TensorSums::std_ratio() const {
  const double n = static_cast<double>(pairs);
  const auto spread = [n](double squares, double sum) {
    return std::sqrt(std::max(0.0, squares / n - (sum / n) * (sum / n)));
  };
  if (pairs == 0)
    return std::numeric_limits<double>::quiet_NaN();
  return spread(candidate, candidate_sum) / spread(reference, reference_sum);
}

double TensorSums::cosine() const {
  return (reference + candidate - difference) / (2 * std::sqrt(reference) * std::sqrt(candidate));
}

Result<TensorSums> tensor_sums(const TensorPair& pair, int threads) {
  TensorSums sums;
  sums.identical = pair.reference_dtype() == pair.candidate_dtype();
  if (pair.rows() == 0 || pair.cols() == 0)
    return sums;
  const std::int64_t rows = std::min(rows_per_chunk(pair), pair.rows());
  const std::int64_t chunks = (pair.rows() + rows - 1) / rows;

  // Chunks are summed anywhere and added in order. A window keeps the partial sums few.
  constexpr std::int64_t window = 4096;
  std::vector<TensorSums> parts(static_cast<std::size_t>(std::min(chunks, window)));
  const int workers = static_cast<int>(std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(1, chunks / 2)));
  std::mutex guard;
  std::optional<Error> failure;
  for (std::int64_t first = 0; first < chunks; first += window) {
    const std::int64_t last = std::min(chunks, first + window);
    std::atomic<std::int64_t> next = first;
    const auto work = [&] {
      Buffers buffers(pair, rows);
      for (std::int64_t chunk = next++; chunk < last; chunk = next++) {
        const std::int64_t begin = chunk * rows, count = std::min(rows, pair.rows() - begin);
        if (auto read = pair.read(begin, count, buffers.reference.get(), buffers.candidate.get()); !read) {
          const std::lock_guard lock(guard);
          if (!failure)
            failure = read.error();
          next = last;
          return;
        }
        parts[static_cast<std::size_t>(chunk - first)] =
            sum_chunk(buffers.reference.get(), pair.reference_dtype(), buffers.candidate.get(), pair.candidate_dtype(),
                      count * pair.cols());
      }
    };
    std::vector<std::jthread> pool;
    for (int i = 1; i < workers; ++i)
      pool.emplace_back(work);
    work();
    pool.clear();
    if (failure)
      return *failure;
    for (std::int64_t chunk = first; chunk < last; ++chunk)
      sums.add(parts[static_cast<std::size_t>(chunk - first)]);
  }
  return sums;
}

namespace {

struct Found {
  double distance = 0; // infinite where only one side is finite
  WorstElement element;
};

bool worse(const Found& a, const Found& b) { // ties: the earlier element
  if (a.distance != b.distance)
    return a.distance > b.distance;
  if (a.element.row != b.element.row)
    return a.element.row < b.element.row;
  return a.element.column < b.element.column;
}

} // namespace

Result<TensorDetail> tensor_detail(const TensorPair& pair, double allowed, std::int64_t wanted) {
  TensorDetail detail;
  if (pair.rows() == 0 || pair.cols() == 0)
    return detail;
  const std::int64_t rows = std::min(rows_per_chunk(pair), pair.rows()), cols = pair.cols();
  GroupNorms by_row(pair.rows(), most_groups), by_column(cols, most_groups);
  const std::size_t ia = probes::item_size(pair.reference_dtype()), ib = probes::item_size(pair.candidate_dtype());
  Buffers buffers(pair, rows);
  std::vector<double> va(static_cast<std::size_t>(std::min(cols, tile))), vb(va.size());
  std::vector<Found> worst;

  for (std::int64_t begin = 0; begin < pair.rows(); begin += rows) {
    const std::int64_t count = std::min(rows, pair.rows() - begin);
    if (auto read = pair.read(begin, count, buffers.reference.get(), buffers.candidate.get()); !read)
      return read.error();
    for (std::int64_t r = 0; r < count; ++r) {
      for (std::int64_t c = 0; c < cols; c += tile) {
        const std::int64_t n = std::min(tile, cols - c);
        const std::byte* pa = buffers.reference.get() + (r * cols + c) * ia;
        const std::byte* pb = buffers.candidate.get() + (r * cols + c) * ib;
        to_doubles(pair.reference_dtype(), pa, n, va.data());
        to_doubles(pair.candidate_dtype(), pb, n, vb.data());
        double row_difference = 0, row_reference = 0;
        for (std::int64_t i = 0; i < n; ++i) {
          const double a = va[i], b = vb[i];
          const bool fa = std::isfinite(a), fb = std::isfinite(b);
          double distance = 0;
          if (fa && fb) {
            distance = std::fabs(a - b);
            row_difference += distance * distance;
            row_reference += a * a;
            by_column.add(c + i, distance * distance, a * a);
          } else if (fa != fb) {
            distance = std::numeric_limits<double>::infinity();
            row_difference = distance;
            by_column.add(c + i, distance, 0);
          }
          if (!(distance > 0) || wanted <= 0)
            continue;
          Found found{distance, {}};
          found.element.row = pair.row_of_segment(begin + r);
          found.element.column = c + i;
          if (static_cast<std::int64_t>(worst.size()) == wanted && !worse(found, worst.back()))
            continue;
          found.element.reference = a;
          found.element.candidate = b;
          found.element.reference_hex = hex_of(pair.reference_dtype(), pa + i * ia);
          found.element.candidate_hex = hex_of(pair.candidate_dtype(), pb + i * ib);
          worst.insert(std::upper_bound(worst.begin(), worst.end(), found, worse), std::move(found));
          if (static_cast<std::int64_t>(worst.size()) > wanted)
            worst.pop_back();
        }
        by_row.add(begin + r, row_difference, row_reference);
      }
    }
  }
  detail.bad_rows = by_row.outside(allowed);
  for (auto& range : detail.bad_rows)
    range = {pair.row_of_segment(range[0]), pair.row_of_segment(range[1])};
  detail.bad_columns = by_column.outside(allowed);
  for (auto& found : worst)
    detail.worst.push_back(std::move(found.element));
  return detail;
}

Result<bool> equal_leading_columns(const StoredTensor& a, const StoredTensor& b, std::int64_t columns) {
  const auto row_bytes = [](const StoredTensor& t) {
    return t.cols * static_cast<std::int64_t>(probes::item_size(t.dtype));
  };
  if (a.dtype != b.dtype || a.rows != b.rows || columns > a.cols || columns > b.cols)
    return false;
  if (a.cols > longest_row || b.cols > longest_row || row_bytes(a) > longest_row || row_bytes(b) > longest_row)
    return false;
  const std::int64_t longer = std::max<std::int64_t>(1, std::max(row_bytes(a), row_bytes(b)));
  const std::int64_t rows = std::max<std::int64_t>(1, chunk_bytes / longer);
  std::vector<std::byte> left(static_cast<std::size_t>(rows * row_bytes(a))),
      right(static_cast<std::size_t>(rows * row_bytes(b)));
  const std::size_t common = static_cast<std::size_t>(columns) * probes::item_size(a.dtype);
  for (std::int64_t begin = 0; begin < a.rows; begin += rows) {
    const std::int64_t count = std::min(rows, a.rows - begin);
    if (auto read = a.read_rows(begin, count, left.data()); !read)
      return read.error();
    if (auto read = b.read_rows(begin, count, right.data()); !read)
      return read.error();
    for (std::int64_t r = 0; r < count; ++r)
      if (std::memcmp(left.data() + r * row_bytes(a), right.data() + r * row_bytes(b), common) != 0)
        return false;
  }
  return true;
}

} // namespace h3diff::goldens
