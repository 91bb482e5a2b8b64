#include "exit_codes.hpp"
#include "h3diff/cases/bundle.hpp"
#include "h3diff/cases/checkpoint.hpp"
#include "h3diff/cases/safetensors.hpp"
#include "h3diff/probes/dump.hpp"
#include "inspect.hpp"
#include "verbs.hpp"
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <filesystem>
#include <memory>

namespace h3diff::cli {
namespace {

int inspect(const InspectArguments& arguments) {
  std::error_code error;
  if (!std::filesystem::exists(arguments.path, error))
    return fail(bad_input(fmt::format("{}: no such file or folder", arguments.path)), arguments.json);
  const bool folder = std::filesystem::is_directory(arguments.path, error);
  Result<Inspection> result = !folder && probes::is_hdf5(arguments.path) ? inspect_dump(arguments)
                              : cases::is_bundle(arguments.path)         ? inspect_bundle(arguments)
                                                                         : inspect_checkpoint(arguments);
  if (!result)
    return fail(result.error(), arguments.json);
  const int code = arguments.json == "-" ? 0 : print_report(result->text, 0);
  return write_json(result->record, arguments.json, code);
}

} // namespace

void add_inspect(CLI::App& app, Program& program) {
  const auto to = std::make_shared<InspectArguments>();
  CLI::App* verb = add_verb(app, "inspect", "What is in a dump, a checkpoint or a bundle, told by content, not by name",
                            "h3diff inspect tiny.h5 --probe 'blocks.0.attn.*'", {0, 3});
  verb->add_option("FILE", to->path, "A dump, a safetensors file, a checkpoint's or a bundle's folder")
      ->required()
      ->type_name("");
  verb->add_option("--probe", to->probe, "Of a dump: show the statistics of the probes that match")->type_name("GLOB");
  verb->add_option("--step", to->step, "Of a dump: only this step (-1: weights)")->type_name("N");
  verb->add_option("--layout", to->layout, "The checkpoint's layout, where nothing tells raw from comfy")
      ->check(CLI::IsMember({"raw", "comfy", "diffusers"}))
      ->type_name("raw|comfy|diffusers");
  add_json_option(*verb, to->json);
  verb->callback([&program, to] { program.action = [to] { return inspect(*to); }; });
}

} // namespace h3diff::cli
