#include "case_source.hpp"
#include "exit_codes.hpp"
#include "h3diff/cases/bundle.hpp"
#include "progress.hpp"
#include "terminal.hpp"
#include "verbs.hpp"
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <charconv>
#include <memory>
#include <optional>

namespace h3diff::cli {
namespace {

struct Arguments {
  std::string source, layout, curve, weights_dtype, json;
  std::optional<std::uint64_t> seed;
  std::optional<int> steps;
  cases::ExportOptions options;
};

// "1025x8": rows and columns of the table.
Result<void> parse_curve(const std::string& text, cases::ExportOptions& options) {
  const char* const end = text.data() + text.size();
  const auto grid = std::from_chars(text.data(), end, options.curve_grid);
  if (grid.ec == std::errc{} && grid.ptr != end && *grid.ptr == 'x') {
    const auto rank = std::from_chars(grid.ptr + 1, end, options.curve_rank);
    if (rank.ec == std::errc{} && rank.ptr == end && options.curve_grid >= 2 && options.curve_rank >= 1)
      return {};
  }
  return usage_error(
      fmt::format("--curve {}: GxR is wanted, a table of G >= 2 rows and R >= 1 columns, as in 1025x8", text));
}

int export_case(Arguments& arguments) {
  auto spec = read_case(arguments.source);
  if (!spec)
    return fail(spec.error(), arguments.json);
  if (arguments.seed)
    spec->seed = *arguments.seed;
  if (arguments.steps)
    spec->steps = *arguments.steps;
  if (!arguments.weights_dtype.empty())
    spec->weights.dtype = arguments.weights_dtype;
  if (!arguments.curve.empty()) {
    if (const auto parsed = parse_curve(arguments.curve, arguments.options); !parsed)
      return fail(parsed.error(), arguments.json);
  } else if (arguments.options.pad_columns > 0) {
    return fail(usage_error("--pad-columns needs --curve: only a curve table has columns to pad"), arguments.json);
  }
  arguments.options.layout = *cases::parse_layout(arguments.layout);

  auto progress = std::make_unique<Progress>("export");
  arguments.options.progress = [&](std::int64_t done, std::int64_t total) {
    progress->update(total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0.0,
                     fmt::format("{} of {}", byte_size(done), byte_size(total)));
  };
  const auto done = cases::export_bundle(*spec, arguments.options);
  progress.reset();
  if (!done)
    return fail(done.error(), arguments.json);

  std::string text =
      fmt::format("{}  case {}, layout {}, seed {}", arguments.options.path, spec->name, arguments.layout, spec->seed);
  if (arguments.options.curve_grid > 0)
    text += fmt::format(", curve {} x {}", arguments.options.curve_grid, arguments.options.curve_rank);
  if (arguments.options.pad_columns > 0)
    text += fmt::format(" padded to {} columns ({})", arguments.options.pad_columns, arguments.options.pad);
  const int code = arguments.json == "-" ? 0 : print_report(text + "\n", 0);
  return write_json({{"exit_code", code},
                     {"bundle", arguments.options.path},
                     {"case", spec->name},
                     {"layout", arguments.layout},
                     {"seed", spec->seed}},
                    arguments.json, code);
}

} // namespace

void add_case_export(CLI::App& case_verb, Program& program) {
  const auto to = std::make_shared<Arguments>();
  CLI::App* verb = add_verb(case_verb, "export", "Write a case as a bundle: a checkpoint, inputs and case.json",
                            "h3diff case export small --layout comfy --curve 1025x8 -o small-curve", {0, 3, 5});
  verb->add_option("CASE", to->source, "A case's name, or a JSON file (with a '/' or ending in .json)")
      ->required()
      ->type_name("");
  verb->add_option("--layout", to->layout, "Names and row order of the checkpoint")
      ->required()
      ->check(CLI::IsMember({"raw", "comfy", "diffusers"}))
      ->type_name("raw|comfy|diffusers");
  verb->add_option("-o,--output", to->options.path, "The bundle's folder; must not exist yet")
      ->required()
      ->type_name("BUNDLE");
  verb->add_option("--shard-size", to->options.shard_bytes,
                   "Split the checkpoint into files of this size, with an index")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("BYTES");
  verb->add_option("--seed", to->seed, "Seed of weights and inputs (default: the case's)")->type_name("N");
  verb->add_option("--steps", to->steps, "Evaluations (default: the case's)")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  verb->add_option("--weights-dtype", to->weights_dtype, "Of everything but the float32 islands; float32 for all")
      ->check(CLI::IsMember({"bfloat16", "float32"}))
      ->type_name("bfloat16|float32");
  verb->add_option("--curve", to->curve, "Curve form of AdaLN with a table of G rows and R columns")->type_name("GxR");
  verb->add_option("--pad-columns", to->options.pad_columns, "Widen the table and the projections to N columns")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
      ->type_name("N");
  verb->add_option("--pad", to->options.pad, "What the projections' new columns hold")
      ->check(CLI::IsMember({"zero", "random"}))
      ->capture_default_str()
      ->type_name("zero|random");
  verb->add_flag("--overwrite", to->options.overwrite, "Replace an existing BUNDLE");
  add_json_option(*verb, to->json);
  verb->callback([&program, to] { program.action = [to] { return export_case(*to); }; });
}

} // namespace h3diff::cli
