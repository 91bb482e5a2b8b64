#include "exit_codes.hpp"
#include "h3diff/cases/bundle.hpp"
#include "h3diff/cases/import.hpp"
#include "h3diff/probes/stream.hpp"
#include "progress.hpp"
#include "terminal.hpp"
#include "verbs.hpp"
#include "version.hpp"
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <filesystem>
#include <memory>

namespace h3diff::cli {
namespace {

struct Arguments {
  std::string layout, like, json;
  bool propose = false;
  cases::ImportOptions options;
};

int propose(const Arguments& arguments) {
  const auto proposal = cases::propose_map(arguments.options.source, arguments.like);
  if (!proposal)
    return fail(proposal.error(), arguments.json);
  if (const auto written = cases::write_proposal(*proposal, arguments.options.output, arguments.options.overwrite);
      !written)
    return fail(written.error(), arguments.json);
  Table table({{"tensor"}, {"probe"}, {"guessed because", false, false, true}});
  nlohmann::json entries = nlohmann::json::array();
  for (const cases::ProposedEntry& entry : proposal->entries) {
    table.add(
        {probes::printable(entry.name), entry.probe.empty() ? "?" : entry.probe, probes::printable(entry.reason, 300)},
        entry.probe.empty() ? Table::Tone::doubtful : Table::Tone::plain);
    entries.push_back({{"name", entry.name}, {"probe", entry.probe}, {"reason", entry.reason}});
  }
  const std::string text =
      fmt::format("{}  a draft of {}; nothing was imported. Delete \"guess\" from each entry that is right.\n{}",
                  arguments.options.output, plural(std::ssize(proposal->entries), "entry", "entries"),
                  table.text(Ink::for_stream(1)));
  const int code = arguments.json == "-" ? 0 : print_report(text, 0);
  return write_json({{"exit_code", code}, {"map", arguments.options.output}, {"entries", entries}}, arguments.json,
                    code);
}

int report(const Arguments& arguments, const std::string& text, nlohmann::json record,
           const std::vector<std::string>& notes) {
  std::string all = text;
  for (const std::string& note : notes)
    all += paragraph(probes::printable(note, 300), "  - ");
  const int code = arguments.json == "-" ? 0 : print_report(all, 0);
  record["exit_code"] = code;
  record["dump"] = arguments.options.output;
  record["notes"] = notes;
  return write_json(record, arguments.json, code);
}

int import_stream(const Arguments& arguments) {
  if (!arguments.options.map.empty() || arguments.options.capture != "stats")
    return fail(usage_error(fmt::format("{}: is a probe stream, which is measured and named already: --map and "
                                        "--capture do not apply",
                                        arguments.options.source)),
                arguments.json);
  probes::StreamToDumpOptions options;
  options.overwrite = arguments.options.overwrite;
  if (!arguments.options.bundle.empty()) {
    const auto bundle = cases::open_bundle(arguments.options.bundle, arguments.options.checkpoint);
    if (!bundle)
      return fail(bundle.error(), arguments.json);
    options.facts = probes::shape_facts(bundle->checkpoint.shape());
    options.facts["bundle"] = bundle->name;
    options.facts["case_digest"] = bundle->case_digest;
    options.facts["checkpoint_digest"] = bundle->checkpoint.digest();
    if (bundle->has_case)
      options.facts["case"] = bundle->case_name;
  }
  const auto done = probes::stream_to_dump(arguments.options.source, arguments.options.output, options);
  if (!done)
    return fail(done.error(), arguments.json);
  return report(arguments,
                fmt::format("{}  {} of {}{}\n", arguments.options.output, plural(done->rows, "row"),
                            plural(done->steps, "step"), done->finished ? "" : ", unfinished"),
                {{"rows", done->rows}, {"steps", done->steps}, {"finished", done->finished}}, done->notes);
}

int import_folder(Arguments& arguments) {
  if (arguments.options.bundle.empty())
    return fail(usage_error("import of a folder needs --bundle: the model's graph and the segments come from it"),
                arguments.json);
  auto progress = std::make_unique<Progress>("import");
  arguments.options.producer = fmt::format("h3diff {} import", version);
  arguments.options.progress = [&](std::int64_t done, std::int64_t total) {
    progress->update(total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0.0,
                     fmt::format("{} of {}", done, plural(total, "probe")));
  };
  const auto done = cases::import_tensors(arguments.options);
  progress.reset();
  if (!done)
    return fail(done.error(), arguments.json);
  std::string text = fmt::format("{}  {}, {} of {}\n", arguments.options.output, plural(done->probes, "probe"),
                                 plural(done->rows, "row"), plural(std::ssize(done->steps), "step"));
  if (!done->not_imported.empty()) {
    text += heading(Ink::for_stream(1), "not imported", ", as nothing maps them");
    constexpr std::size_t shown = 12;
    for (std::size_t i = 0; i < std::min(shown, done->not_imported.size()); ++i)
      text += "  " + probes::printable(done->not_imported[i]) + "\n";
    if (done->not_imported.size() > shown)
      text += fmt::format("  and {} more\n", done->not_imported.size() - shown);
  }
  return report(
      arguments, text,
      {{"probes", done->probes}, {"rows", done->rows}, {"steps", done->steps}, {"not_imported", done->not_imported}},
      done->notes);
}

int import(Arguments& arguments) {
  std::error_code ignored;
  if (!std::filesystem::exists(arguments.options.source, ignored))
    return fail(bad_input(fmt::format("{}: no such file or folder", arguments.options.source)), arguments.json);
  if (arguments.propose != !arguments.like.empty())
    return fail(usage_error("--propose-map and --like go together"), arguments.json);
  arguments.options.checkpoint.layout = cases::parse_layout(arguments.layout);
  if (arguments.propose)
    return propose(arguments);
  if (std::filesystem::is_directory(arguments.options.source, ignored))
    return import_folder(arguments);
  if (!probes::is_stream(arguments.options.source))
    return fail(bad_input(fmt::format("{}: is not a probe stream, nor a folder", arguments.options.source)),
                arguments.json);
  return import_stream(arguments);
}

} // namespace

void add_import(CLI::App& app, Program& program) {
  const auto to = std::make_shared<Arguments>();
  CLI::App* verb = add_verb(app, "import", "Make a dump of tensors or of a probe stream that another program saved",
                            "h3diff import saved --bundle tiny --map diffusers -o port.h5\n"
                            "  h3diff import port.h3stream -o port.h5\n"
                            "  h3diff import saved --propose-map --like reference.h5 -o draft.json",
                            {0, 3, 5});
  verb->add_option("SOURCE", to->options.source,
                   "A folder of .safetensors, .npy, raw .bin files (and dump.json), or a probe stream")
      ->required()
      ->type_name("");
  verb->add_option("--bundle", to->options.bundle, "What ran: the graph, the segments and the schedule")
      ->type_name("BUNDLE");
  verb->add_option("--map", to->options.map,
                   fmt::format("Names and transforms: {}, or a JSON file", fmt::join(cases::map_names(), ", ")))
      ->type_name("NAME|MAP.json");
  verb->add_option("--layout", to->layout, "The bundle's layout, where nothing tells raw from comfy")
      ->check(CLI::IsMember({"raw", "comfy", "diffusers"}))
      ->type_name("raw|comfy|diffusers");
  verb->add_option("--capture", to->options.capture, "What to keep of each probe")
      ->capture_default_str()
      ->type_name("SPEC");
  verb->add_flag("--propose-map", to->propose, "Draft a map for SOURCE instead; needs --like, imports nothing");
  verb->add_option("--like", to->like, "A dump of the same case, to draft from")->type_name("DUMP");
  verb->add_option("--threads", to->options.threads, "CPU threads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str()
      ->type_name("N");
  verb->add_option("-o,--output", to->options.output, "The dump, or the drafted map")->required()->type_name("FILE");
  verb->add_flag("--overwrite", to->options.overwrite, "Replace an existing FILE");
  add_json_option(*verb, to->json);
  verb->callback([&program, to] { program.action = [to] { return import(*to); }; });
}

} // namespace h3diff::cli
