#include "facts.hpp"
#include "columns.hpp"
#include <fmt/format.h>
#include <algorithm>

namespace h3diff::goldens {

using probes::DumpReader;
using probes::printable;

namespace {

constexpr const char* told[] = {"case",
                                "case_digest",
                                "checkpoint_digest",
                                "seed",
                                "pipeline",
                                "pipeline_version",
                                "profile",
                                "compute_dtype",
                                "adaln_form",
                                "num_layers",
                                "num_refiner_layers",
                                "hidden_size",
                                "time_embed_dim",
                                "steps_planned",
                                "device",
                                "sm",
                                "driver",
                                "cuda",
                                "torch",
                                "threads",
                                "isa",
                                "mkl_cbwr",
                                "deterministic"};

constexpr const char* binding[] = {"torch", "cuda", "isa"};

std::string difference(const DumpReader& reference, const DumpReader& candidate, const char* fact) {
  std::string left = reference.fact(fact), right = candidate.fact(fact);
  if (std::string_view(fact) == "torch") { // "2.11.0+cu130": the part after + is the fact `cuda`
    left = left.substr(0, left.find('+'));
    right = right.substr(0, right.find('+'));
  }
  if (left.empty() || right.empty() || left == right)
    return "";
  return fmt::format("{} {} against {}", fact, printable(left, 64), printable(right, 64));
}

void run_notes(const DumpReader& dump, const char* which, std::vector<std::string>& notes) {
  if (!dump.finished()) {
    const auto done =
        std::count_if(dump.steps().begin(), dump.steps().end(), [](const auto& s) { return s.step >= 0; });
    const std::string planned = dump.fact("steps_planned");
    notes.push_back(fmt::format("the {} is unfinished: {}{} steps are complete", which, done,
                                planned.empty() ? "" : " of " + printable(planned, 20)));
  }
  if (const auto over = dump.fact("tensors_over_budget"); !over.empty() && over != "0")
    notes.push_back(fmt::format("the {}'s byte budget turned {} captures into statistics", which, printable(over, 20)));
}

} // namespace

std::optional<probes::DType> claimed_dtype(const DumpReader& dump) {
  return probes::parse_dtype(dump.fact("compute_dtype"));
}

std::vector<std::string> fact_notes(const DumpReader& reference, const DumpReader& candidate) {
  std::vector<std::string> notes;
  run_notes(reference, "reference", notes);
  run_notes(candidate, "candidate", notes);
  const bool other_pipeline = !difference(reference, candidate, "pipeline").empty();
  for (const char* fact : told) {
    if (other_pipeline && std::string_view(fact) == "pipeline_version")
      continue; // versions of two programs
    if (auto text = difference(reference, candidate, fact); !text.empty()) {
      if (std::string_view(fact) == "case_digest")
        text += " (the inputs themselves decide)";
      notes.push_back(std::move(text));
    }
  }
  for (const auto& [dump, which] : {std::pair{&reference, "reference"}, std::pair{&candidate, "candidate"}})
    if (!claimed_dtype(*dump))
      notes.push_back(fmt::format("the {} does not say its compute dtype: no probe is judged by its dtype", which));
  return notes;
}

std::string version_difference(const DumpReader& reference, const DumpReader& candidate) {
  for (const char* fact : binding)
    if (auto text = difference(reference, candidate, fact); !text.empty())
      return text;
  return "";
}

double statistics_slack(const DumpReader& reference, const DumpReader& candidate) {
  return reference.fact("device") == "cpu" && candidate.fact("device") == "cpu" ? cpu_slack : accelerator_slack;
}

std::string shell_word(const DumpReader& dump, const std::string& fact, const std::string& otherwise) {
  const std::string text = dump.fact(fact);
  const bool plain = !text.empty() && text.size() <= 200 && text.front() != '-' &&
                     std::all_of(text.begin(), text.end(), [](unsigned char c) {
                       return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
                              c == '-' || c == '.' || c == '+' || c == '/';
                     });
  return plain ? text : otherwise;
}

std::string rerun_command(const DumpReader& dump, const std::string& options, const std::string& output) {
  const std::string source = shell_word(dump, "bundle", shell_word(dump, "case", "BUNDLE"));
  return fmt::format("h3diff run {} --profile {} {} -o {}", source, shell_word(dump, "profile", "PROFILE"), options,
                     output);
}

std::string capture_command(const DumpReader& dump, const std::string& capture, std::int32_t steps,
                            const std::string& output) {
  const std::string pipeline = shell_word(dump, "pipeline", "PIPELINE");
  const std::string options = fmt::format("--steps {} --capture '{}'", steps, capture);
  if (pipeline == "h3diff")
    return rerun_command(dump, options, output);
  if (pipeline != "diffusers" && pipeline != "diffsynth")
    return ""; // a runtime that we do not start
  const auto dtype = claimed_dtype(dump);
  const char* flag = dtype == probes::DType::bfloat16  ? " --dtype bf16"
                     : dtype == probes::DType::float32 ? " --dtype f32"
                                                       : "";
  return fmt::format("python -m h3diff_capture {} {}{} {} -o {}", pipeline, shell_word(dump, "bundle", "BUNDLE"), flag,
                     options, output);
}

} // namespace h3diff::goldens
