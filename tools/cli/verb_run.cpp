#include "exit_codes.hpp"
#include "h3diff/harness/run.hpp"
#include "progress.hpp"
#include "run_arguments.hpp"
#include "terminal.hpp"
#include "verbs_torch.hpp"
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <csignal>
#include <filesystem>
#include <memory>

namespace h3diff::cli {
namespace {

volatile bool interrupted = false;

// The first signal asks the run to stop after its step; a second one ends the process at once.
void stop_at_next_step() {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = true; };
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int run_verb(const RunArguments& arguments) {
  harness::RunOptions options;
  options.source = arguments.source;
  options.profile = arguments.profile;
  options.layout = arguments.layout;
  options.device = arguments.device;
  options.threads = arguments.threads;
  options.steps = arguments.steps;
  options.seed = arguments.seed;
  options.capture = arguments.capture;
  options.zero_columns = arguments.zero_columns;
  options.output = arguments.output;
  options.overwrite = arguments.overwrite;

  auto progress = std::make_unique<Progress>("run");
  int last_step = 0;
  options.progress = [&](int step, int steps, const std::string& probe) {
    last_step = std::max(step, 0);
    progress->update(static_cast<double>(last_step) / std::max(steps, 1),
                     fmt::format("step {} of {}, {}", last_step + 1, steps, probe));
  };
  stop_at_next_step();
  const auto summary = harness::run(options, &interrupted);
  progress.reset();

  const std::string partial = arguments.output + ".partial";
  if (interrupted && (!summary || std::filesystem::exists(partial))) {
    const std::string message = std::filesystem::exists(partial)
                                    ? fmt::format("interrupted; the steps finished until then are in {}", partial)
                                    : "interrupted before anything was written";
    fmt::print(stderr, "h3diff: {}\n", message);
    return write_json({{"exit_code", interrupted_code}, {"interrupted", true}, {"partial", partial}}, arguments.json,
                      interrupted_code);
  }
  if (!summary)
    return fail(summary.error(), arguments.json);

  std::string text =
      fmt::format("{}  {}, {}, profile {} on {}\n", arguments.output, plural(summary->steps, "step"),
                  plural(summary->probes, "row of probes", "rows of probes"), arguments.profile, arguments.device);
  if (summary->over_budget > 0)
    text += paragraph(fmt::format("{} kept as statistics only: the byte budget was used up (raise it with "
                                  "--capture ...,budget=BYTES)",
                                  plural(summary->over_budget, "tensor was", "tensors were")));
  if (arguments.json == "-")
    text.clear();
  const int code = print_report(text, 0);
  return write_json({{"exit_code", code},
                     {"output", arguments.output},
                     {"steps", summary->steps},
                     {"rows", summary->probes},
                     {"over_budget", summary->over_budget}},
                    arguments.json, code);
}

} // namespace

void add_run(CLI::App& app, Program& program) {
  const auto arguments = std::make_shared<RunArguments>();
  CLI::App* verb = add_run_options(app, *arguments);
  verb->callback([&program, arguments] { program.action = [arguments] { return run_verb(*arguments); }; });
}

} // namespace h3diff::cli
