#include "exit_codes.hpp"
#include "h3diff/goldens/compare.hpp"
#include "report.hpp"
#include "verbs.hpp"
#include <fmt/format.h>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>

namespace h3diff::cli {
namespace {

struct Arguments {
  std::string reference, candidate, expect, json;
  double factor = 1.0;
  int threads = 2;
  bool all = false;
};

// One probe or glob a line; # starts a comment.
Result<std::vector<std::string>> read_expected(const std::string& path) {
  std::ifstream stream(path);
  if (!stream)
    return bad_input(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  std::vector<std::string> expected;
  for (std::string line; std::getline(stream, line);) {
    line.erase(std::min(line.find('#'), line.size()));
    line.erase(line.find_last_not_of(" \t\r") + 1);
    line.erase(0, line.find_first_not_of(" \t"));
    if (!line.empty())
      expected.push_back(line);
  }
  if (expected.empty())
    return bad_input(fmt::format("{}: names no probe", path));
  return expected;
}

int compare(const Arguments& arguments) {
  goldens::CompareOptions options;
  options.factor = arguments.factor;
  options.threads = arguments.threads;
  if (!arguments.expect.empty()) {
    auto expected = read_expected(arguments.expect);
    if (!expected)
      return fail(expected.error(), arguments.json);
    options.expect = std::move(*expected);
  }
  const auto result = goldens::compare(arguments.reference, arguments.candidate, options);
  if (!result)
    return fail(result.error(), arguments.json);
  int code = static_cast<int>(result->exit_code);
  if (arguments.json != "-")
    code = print_report(comparison_text(*result, Ink::for_stream(1), arguments.all), code);
  return write_comparison(*result, arguments.json, code);
}

} // namespace

void add_compare(CLI::App& app, Program& program) {
  const auto to = std::make_shared<Arguments>();
  CLI::App* verb = add_verb(app, "compare", "Compare two dumps and name the first op that diverges",
                            "h3diff compare reference.h5 candidate.h5 --json record.json", {0, 1, 3, 4, 5});
  verb->add_option("REFERENCE", to->reference, "The dump to trust")->required()->type_name("");
  verb->add_option("CANDIDATE", to->candidate, "The dump to judge")->required()->type_name("");
  verb->add_option("--expect", to->expect,
                   "Probes that must be compared, one name or glob a line (default: all of "
                   "REFERENCE)")
      ->type_name("FILE");
  verb->add_option("--factor", to->factor, "Scales every tolerance")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str()
      ->type_name("X");
  verb->add_option("--threads", to->threads, "CPU threads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str()
      ->type_name("N");
  verb->add_flag("--all", to->all, "List every probe, segment and culprit");
  add_json_option(*verb, to->json);
  verb->callback([&program, to] { program.action = [to] { return compare(*to); }; });
}

} // namespace h3diff::cli
