// `import`: what a foreign runtime wrote, as a dump.
#include "exit_codes.hpp"
#include "h3diff/probes/dump.hpp"
#include "h3diff/probes/stream.hpp"
#include "terminal.hpp"
#include "verbs.hpp"
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <filesystem>
#include <memory>

namespace h3diff::cli {
namespace {

struct ImportArguments {
  std::string stream, output, json;
  bool overwrite = false;
};

int import_stream(const ImportArguments& arguments) {
  std::error_code error;
  if (!std::filesystem::exists(arguments.stream, error))
    return fail(bad_input(fmt::format("{}: no such file", arguments.stream)), arguments.json);
  if (!probes::is_stream(arguments.stream))
    return fail(bad_input(fmt::format("{}: is not a probe stream", arguments.stream)), arguments.json);
  probes::StreamToDumpOptions options;
  options.overwrite = arguments.overwrite;
  const auto imported = probes::stream_to_dump(arguments.stream, arguments.output, options);
  if (!imported)
    return fail(imported.error(), arguments.json);
  std::string text =
      fmt::format("{}  {} step{}, {} rows of probes{}\n", arguments.output, imported->steps,
                  imported->steps == 1 ? "" : "s", count(imported->rows), imported->finished ? "" : ", unfinished");
  for (const std::string& note : imported->notes)
    text += paragraph(probes::printable(note, 300), "  - ", "    ");
  const nlohmann::json record = {
      {"exit_code", 0},         {"output", arguments.output},     {"steps", imported->steps},
      {"rows", imported->rows}, {"finished", imported->finished}, {"notes", imported->notes}};
  const int code = arguments.json == "-" ? 0 : print_report(text, 0);
  return write_json(record, arguments.json, code);
}

} // namespace

void add_import(CLI::App& app, Program& program) {
  const auto to = std::make_shared<ImportArguments>();
  CLI::App* verb = add_verb(app, "import", "Make a dump of the probe stream that a foreign runtime wrote",
                            "h3diff import run.h3stream -o run.h5", {0, 2, 3, 5});
  verb->add_option("STREAM", to->stream, "A file that h3diff_probe.h wrote; a cut one is read up to the cut")
      ->required()
      ->type_name("");
  verb->add_option("-o,--output", to->output, "The dump to write")->required()->type_name("DUMP");
  verb->add_flag("--overwrite", to->overwrite, "Replace DUMP if it exists");
  add_json_option(*verb, to->json);
  verb->callback([&program, to] { program.action = [to] { return import_stream(*to); }; });
}

} // namespace h3diff::cli
