#include "bench_report.hpp"
#include "child.hpp"
#include "exit_codes.hpp"
#include "h3diff/cases/philox.hpp"
#include "h3diff/probes/dump.hpp"
#include "numpy_comparison.hpp"
#include "progress.hpp"
#include "terminal.hpp"
#include "torch_half.hpp"
#include "version.hpp"
#include "verbs.hpp"
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>

namespace h3diff::cli {
namespace {

struct Arguments {
  std::int64_t size = std::int64_t{1} << 30;
  int rounds = 3;
  int threads = 2;
  bool keep = false;
  std::string folder, python = "python3", json;
};

// Tensors of 32 MiB: rows of the true width at the outputs of true-width blocks.
constexpr std::int64_t columns = 5376, rows = 1560, tensor_bytes = columns * rows * 4;

constexpr const char *reference_name = "/reference.h5", *candidate_name = "/candidate.h5";

std::int64_t tensors_in(std::int64_t bytes) {
  return std::max<std::int64_t>(1, (bytes + tensor_bytes / 2) / tensor_bytes);
}

std::vector<float> base_values() {
  const cases::TensorStream stream(1, "bench.compare");
  std::vector<float> values(static_cast<std::size_t>(columns * rows));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = stream.normal(i);
  return values;
}

// The candidate's last mantissa bit differs in every 16th element: inside tolerance, so that a comparer must read
// every tensor and cannot stop early.
Result<void> write_dump(const std::string& path, std::int64_t tensors, bool candidate, int threads,
                        std::vector<float> values, Progress& progress) {
  probes::ModelShape shape;
  probes::RunFacts facts = probes::shape_facts(shape);
  facts["producer"] = fmt::format("h3diff {} bench", version);
  facts["pipeline"] = "h3diff";
  facts["pipeline_version"] = version;
  facts["profile"] = "bench";
  facts["compute_dtype"] = "float32";
  facts["device"] = "cpu";
  auto writer = probes::DumpWriter::create({path, true}, facts);
  if (!writer)
    return writer.error();
  for (std::size_t i = 0; candidate && i < values.size(); i += 16)
    values[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(values[i]) ^ 1u);

  const auto view = probes::TensorView::contiguous(values.data(), probes::DType::float32, rows, columns);
  const probes::RowRange range{0, rows};
  for (std::int64_t tensor = 0; tensor < tensors; ++tensor) {
    // Another rotation for each tensor, by a multiple of 16 so that the marked elements stay the marked ones.
    std::rotate(values.begin(), values.begin() + 16 * (tensor + 1), values.end());
    probes::MeasureOptions options;
    options.threads = threads;
    const probes::Measurement measured = probes::measure(view, {&range, 1}, options);
    probes::IndexRow row;
    row.step = static_cast<std::int32_t>(tensor / shape.num_layers);
    row.probe = fmt::format("blocks.{}.out", tensor % shape.num_layers);
    row.segment = probes::Segment::video;
    row.rows = rows;
    row.cols = columns;
    row.digest = measured.digest;
    row.statistics = measured.statistics;
    row.level = probes::Level::full;
    row.sketch_k = options.sketch_k;
    writer->add(row, measured.sketch);
    if (const auto added = writer->add_tensor(row.step, row.probe, row.segment, view, {&range, 1}); !added)
      return added.error();
    if (tensor + 1 == tensors || (tensor + 1) % shape.num_layers == 0)
      if (const auto ended = writer->end_step({row.step, 0, 0, 0, 0}); !ended)
        return ended.error();
    progress.update(static_cast<double>(tensor) / static_cast<double>(tensors),
                    candidate ? "writing the candidate" : "writing the reference");
  }
  return writer->finish({});
}

int write_dumps(const Arguments& arguments) {
  Progress progress("bench");
  const std::vector<float> values = base_values();
  for (const bool candidate : {false, true}) {
    const std::string path = arguments.folder + (candidate ? candidate_name : reference_name);
    if (const auto written =
            write_dump(path, tensors_in(arguments.size), candidate, arguments.threads, values, progress);
        !written)
      return fail(written.error());
  }
  return 0;
}

struct Contestant {
  std::string name;
  std::vector<std::string> command;
  std::vector<int> good_codes;
  std::vector<double> seconds;
  std::int64_t peak_bytes = 0;
  std::string absent; // why it was not measured
};

class TemporaryFolder {
public:
  TemporaryFolder(std::string path, bool keep) : path_(std::move(path)), keep_(keep) {}
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!keep_)
      std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

private:
  std::string path_;
  bool keep_;
};

Result<std::string> make_folder(const Arguments& arguments) {
  std::error_code error;
  const std::filesystem::path parent =
      arguments.folder.empty() ? std::filesystem::temp_directory_path(error) : std::filesystem::path(arguments.folder);
  const auto space = std::filesystem::space(parent, error);
  if (error)
    return environment_error(fmt::format("{}: {}", parent.string(), error.message()));
  const std::int64_t needed = 2 * arguments.size + arguments.size / 8;
  if (static_cast<std::int64_t>(space.available) < needed)
    return environment_error(fmt::format("{}: {} are free, {} are needed (--folder names another place, --size takes "
                                         "less)",
                                         parent.string(), byte_size(static_cast<std::int64_t>(space.available)),
                                         byte_size(needed)));
  std::string path = (parent / "h3diff-bench-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr)
    return environment_error(fmt::format("{}: {}", path, std::strerror(errno)));
  return path;
}

int bench_compare(const Arguments& arguments) {
  const auto made = make_folder(arguments);
  if (!made)
    return fail(made.error(), arguments.json);
  const TemporaryFolder folder(*made, arguments.keep);
  const std::string reference = folder.path() + reference_name, candidate = folder.path() + candidate_name;
  const std::int64_t tensors = tensors_in(arguments.size);
  std::vector<Contestant> contestants{
      {"h3diff compare",
       {self_path(), "compare", reference, candidate, "--threads", std::to_string(arguments.threads)},
       {0},
       {},
       0,
       {}},
      {"h5diff", {"h5diff", reference, candidate}, {0, 1}, {}, 0, {}},
      {"numpy + h5py", {arguments.python, "-c", numpy_comparison, reference, candidate}, {0}, {}, 0, {}}};
  // A child's peak memory is never told below its parent's, so what needs memory runs in a child of its own.
  const auto written = run_child({self_path(), "bench", "dumps", folder.path(), "--size",
                                  std::to_string(arguments.size), "--threads", std::to_string(arguments.threads)});
  if (!written)
    return fail(written.error(), arguments.json);
  if (written->exit_code != 0)
    return fail({static_cast<ExitCode>(written->exit_code), "the dumps to compare could not be written"},
                arguments.json);
  {
    Progress progress("bench");
    for (int round = 0; round < arguments.rounds; ++round)
      for (Contestant& contestant : contestants) {
        if (!contestant.absent.empty())
          continue;
        progress.update(static_cast<double>(round) / arguments.rounds, contestant.name);
        const auto child = run_child(contestant.command, true);
        if (!child)
          contestant.absent = child.error().message;
        else if (std::find(contestant.good_codes.begin(), contestant.good_codes.end(), child->exit_code) ==
                 contestant.good_codes.end())
          contestant.absent = fmt::format("{} ended with {}", contestant.command[0], child->exit_code);
        else {
          contestant.seconds.push_back(child->seconds);
          contestant.peak_bytes = std::max(contestant.peak_bytes, child->peak_bytes);
        }
      }
  }

  const double bytes = 2.0 * static_cast<double>(tensors * tensor_bytes);
  const double ours = median(contestants[0].seconds);
  Table table({{"comparer", false},
               {"median s", true},
               {"GB/s", true},
               {"x ours", true},
               {"peak memory", true},
               {"", false, false, true}});
  nlohmann::json results = nlohmann::json::array();
  for (const Contestant& contestant : contestants) {
    const double seconds = median(contestant.seconds);
    const bool measured = contestant.absent.empty();
    table.add({contestant.name, measured ? fmt::format("{:.3f}", seconds) : "-",
               measured ? fmt::format("{:.2f}", bytes / seconds / 1e9) : "-",
               measured ? fmt::format("{:.1f}", seconds / ours) : "-",
               measured ? byte_size(contestant.peak_bytes) : "-",
               measured ? "" : "not measured: " + contestant.absent});
    results.push_back({{"name", contestant.name},
                       {"seconds", contestant.seconds},
                       {"median_seconds", measured ? nlohmann::json(seconds) : nlohmann::json(nullptr)},
                       {"times_ours", measured ? nlohmann::json(seconds / ours) : nlohmann::json(nullptr)},
                       {"peak_bytes", contestant.peak_bytes},
                       {"not_measured", contestant.absent}});
  }
  std::string text = fmt::format("comparing {} + {} of full float32 tensors ({} of {} x {}), median of {}, {}\n",
                                 byte_size(tensors * tensor_bytes), byte_size(tensors * tensor_bytes), tensors, rows,
                                 columns, plural(arguments.rounds, "round"), plural(arguments.threads, "thread")) +
                     table.text(Ink::for_stream(1));
  if (arguments.keep)
    text += fmt::format("kept in {}\n", folder.path());
  const int done = contestants[0].absent.empty() ? 0 : static_cast<int>(ExitCode::environment);
  const int code = arguments.json == "-" ? done : print_report(text, done);
  return write_json({{"exit_code", code},
                     {"bytes_per_dump", tensors * tensor_bytes},
                     {"tensors", tensors},
                     {"threads", arguments.threads},
                     {"results", results}},
                    arguments.json, code);
}

} // namespace

void add_bench_compare(CLI::App& bench, Program& program) {
  const auto to = std::make_shared<Arguments>();
  CLI::App* verb = add_verb(bench, "compare", "Our comparison beside h5diff and numpy with h5py, on the same two dumps",
                            "h3diff bench compare --size 1GiB --rounds 3", {0, 5});
  verb->add_option("--size", to->size, "Size of each dump")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("1GiB")
      ->type_name("BYTES");
  verb->add_option("--rounds", to->rounds, "Rounds; medians are printed")
      ->check(CLI::Range(1, 100))
      ->capture_default_str()
      ->type_name("N");
  verb->add_option("--threads", to->threads, "CPU threads of our side")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str()
      ->type_name("N");
  verb->add_option("--python", to->python, "A Python that has numpy and h5py")
      ->capture_default_str()
      ->type_name("PROGRAM");
  verb->add_option("--folder", to->folder, "Where the two dumps are made (default: the temporary folder)")
      ->type_name("FOLDER");
  verb->add_flag("--keep", to->keep, "Do not delete the dumps");
  add_json_option(*verb, to->json);
  verb->callback([&program, to] { program.action = [to] { return bench_compare(*to); }; });

  const auto writing = std::make_shared<Arguments>();
  CLI::App* dumps = add_verb(bench, "dumps", "Write the two dumps that bench compare compares into FOLDER",
                             "h3diff bench dumps folder --size 1GiB", {0, 5});
  dumps->group("");
  dumps->add_option("FOLDER", writing->folder)->required();
  dumps->add_option("--size", writing->size)->transform(CLI::AsSizeValue(false));
  dumps->add_option("--threads", writing->threads)->check(CLI::Range(1, 1024));
  dumps->callback([&program, writing] { program.action = [writing] { return write_dumps(*writing); }; });
}

} // namespace h3diff::cli
