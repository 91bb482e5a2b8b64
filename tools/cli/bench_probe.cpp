#include "bench_report.hpp"
#include "exit_codes.hpp"
#include "h3diff/probes/measure.hpp"
#include "run_arguments.hpp"
#include "terminal.hpp"
#include "verbs_torch.hpp"
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <array>
#include <chrono>
#include <memory>

namespace h3diff::cli {
namespace {

constexpr std::int64_t heads = 42, head_dim = 128, columns = heads * head_dim; // the published hidden size

// Deterministic values of about unit size, made in float32: a hash of the position, no generator's state.
at::Tensor make_values(std::int64_t rows) {
  at::Tensor tensor = at::empty({rows, columns}, at::kFloat);
  float* out = tensor.data_ptr<float>();
  const std::int64_t n = rows * columns;
  at::parallel_for(0, n, 1 << 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::uint32_t x = static_cast<std::uint32_t>(i) * 0x9E3779B1u + 0x243F6A88u;
      x ^= x >> 16;
      x *= 0x7FEB352Du;
      x ^= x >> 15;
      out[i] = (static_cast<float>(x >> 8) - 8388607.5f) * 0x1p-22f;
    }
  });
  return tensor;
}

probes::TensorView view_of(const at::Tensor& tensor) {
  probes::TensorView view;
  view.data = tensor.data_ptr();
  view.dtype = tensor.scalar_type() == at::kFloat ? probes::DType::float32 : probes::DType::bfloat16;
  view.dims = static_cast<int>(tensor.dim());
  view.row_dims = 1;
  for (int d = 0; d < view.dims; ++d) {
    view.sizes[static_cast<std::size_t>(d)] = tensor.size(d);
    view.strides[static_cast<std::size_t>(d)] = tensor.stride(d);
  }
  return view;
}

template <class F> double seconds_of(F&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Figures {
  std::string tensor;
  double bytes = 0;
  std::array<std::vector<double>, 5> seconds; // the probe, mean, max, min, norm
};

Figures measure_tensor(const std::string& name, const at::Tensor& tensor, const BenchProbeArguments& arguments) {
  Figures figures{name, static_cast<double>(tensor.numel() * tensor.element_size()), {}};
  const probes::TensorView view = view_of(tensor);
  const probes::RowRange range{0, tensor.size(0)};
  probes::MeasureOptions options;
  options.threads = arguments.threads;
  double sink = 0;                                          // results are used, so that nothing is left out
  for (int round = -1; round < arguments.rounds; ++round) { // the first one warms up
    const std::array<double, 5> seconds{seconds_of([&] {
                                          sink += probes::measure(view, {&range, 1}, options).statistics.l2;
                                        }),
                                        seconds_of([&] { sink += at::mean(tensor).item<double>(); }),
                                        seconds_of([&] { sink += at::max(tensor).item<double>(); }),
                                        seconds_of([&] { sink += at::min(tensor).item<double>(); }),
                                        seconds_of([&] { sink += at::norm(tensor).item<double>(); })};
    for (std::size_t i = 0; round >= 0 && i < seconds.size(); ++i)
      figures.seconds[i].push_back(seconds[i]);
  }
  if (sink == 0)
    throw std::logic_error("a benchmark's results were all zero");
  return figures;
}

int bench_probe(const BenchProbeArguments& arguments) {
  const at::InferenceMode guard;
  at::set_num_threads(arguments.threads);
  const std::int64_t rows = std::max<std::int64_t>(1, arguments.size / (columns * 4));
  const at::Tensor values = make_values(rows);
  const at::Tensor narrow = values.to(at::kBFloat16);
  // As attention hands its heads over: [rows, heads, dim] seen through [heads, rows, dim].
  const auto strided = [&](const at::Tensor& t) { return t.view({heads, rows, head_dim}).transpose(0, 1); };
  const std::vector<Figures> all{
      measure_tensor("float32", values, arguments), measure_tensor("float32, strided", strided(values), arguments),
      measure_tensor("bfloat16", narrow, arguments), measure_tensor("bfloat16, strided", strided(narrow), arguments)};

  Table table({{"tensor", false},
               {"size", true},
               {"probe GB/s", true},
               {"mean", true},
               {"max", true},
               {"min", true},
               {"norm", true},
               {"the four", true},
               {"x probe", true}});
  nlohmann::json results = nlohmann::json::array();
  for (const Figures& figures : all) {
    std::array<double, 5> medians{};
    double four = 0;
    for (std::size_t i = 0; i < medians.size(); ++i) {
      medians[i] = median(figures.seconds[i]);
      four += i > 0 ? medians[i] : 0.0;
    }
    const auto speed = [&](double seconds) { return fmt::format("{:.2f}", figures.bytes / seconds / 1e9); };
    table.add({figures.tensor, byte_size(static_cast<std::int64_t>(figures.bytes)), speed(medians[0]),
               speed(medians[1]), speed(medians[2]), speed(medians[3]), speed(medians[4]), speed(four),
               fmt::format("{:.2f}", four / medians[0])});
    results.push_back({{"tensor", figures.tensor},
                       {"bytes", figures.bytes},
                       {"probe_seconds", medians[0]},
                       {"mean_seconds", medians[1]},
                       {"max_seconds", medians[2]},
                       {"min_seconds", medians[3]},
                       {"norm_seconds", medians[4]},
                       {"four_over_probe", four / medians[0]}});
  }
  const std::string text =
      fmt::format("one-pass probe (statistics, digest, sketch) beside torch's mean, max, min and norm, GB/s, median of "
                  "{}, {}\n",
                  plural(arguments.rounds, "round"), plural(arguments.threads, "thread")) +
      table.text(Ink::for_stream(1)) + "x probe: time of torch's four calls over the probe's\n";
  const int code = arguments.json == "-" ? 0 : print_report(text, 0);
  return write_json(
      {{"exit_code", code}, {"rows", rows}, {"columns", columns}, {"threads", arguments.threads}, {"results", results}},
      arguments.json, code);
}

} // namespace

void add_bench_probe(CLI::App& bench, Program& program) {
  const auto arguments = std::make_shared<BenchProbeArguments>();
  CLI::App* verb = add_bench_probe_options(bench, *arguments);
  verb->callback([&program, arguments] { program.action = [arguments] { return bench_probe(*arguments); }; });
}

} // namespace h3diff::cli
