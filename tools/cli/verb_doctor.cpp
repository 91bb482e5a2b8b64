#include "exit_codes.hpp"
#include "h3diff/cases/case_spec.hpp"
#include "h3diff/cases/profile.hpp"
#include "terminal.hpp"
#include "torch_half.hpp"
#include "version.hpp"
#include "verbs.hpp"
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

namespace h3diff::cli {
namespace {

using nlohmann::json;

std::string cpu_model() {
  std::ifstream stream("/proc/cpuinfo");
  for (std::string line; std::getline(stream, line);)
    if (line.rfind("model name", 0) == 0)
      return line.substr(std::min(line.find(':') + 2, line.size()));
  return "unknown";
}

std::string widest_isa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f"))
    return "AVX512";
  if (__builtin_cpu_supports("avx2"))
    return "AVX2";
  return "SSE2";
#elif defined(__aarch64__)
  return "NEON";
#else
  return "unknown";
#endif
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names)
    text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

class Examination {
public:
  void good(const std::string& what, const std::string& found) { line("ok", what, found, false); }
  void absent(const std::string& what, const std::string& found) { line("-", what, found, false); }
  void bad(const std::string& what, const std::string& found) { line("BAD", what, found, true); }
  bool healthy() const { return healthy_; }
  std::string text(const Ink& ink) const { return table_.text(ink, 0); }
  json record() const { return record_; }

private:
  void line(const char* verdict, const std::string& what, const std::string& found, bool fault) {
    table_.add({verdict, what, found}, fault ? Table::Tone::bad : Table::Tone::plain);
    record_[what] = {{"ok", !fault}, {"found", found}};
    healthy_ = healthy_ && !fault;
  }
  Table table_{{{"", false}, {"what", false}, {"found", false, false, true}}};
  json record_ = json::object();
  bool healthy_ = true;
};

void examine_torch(Examination& examination) {
  if (!torch_half_path()) {
    examination.absent("h3diff-torch", "not installed: no run, no bench probe");
    return;
  }
  const auto facts = torch_facts_of_half();
  if (!facts) {
    examination.bad("h3diff-torch", facts.error().message);
    return;
  }
  examination.good("h3diff-torch", *torch_half_path());
  examination.good("libtorch",
                   fmt::format("{}, CPU kernels {}, MKL_CBWR {}", facts->value("torch", "unknown"),
                               facts->value("isa", "unknown"),
                               facts->value("mkl_cbwr", "").empty() ? "unset" : facts->value("mkl_cbwr", "")));
  const auto devices = facts->value("devices", std::vector<std::string>{});
  if (devices.empty())
    examination.absent("CUDA devices", "none that this libtorch can use");
  else
    examination.good("CUDA devices", listed(devices));
}

int doctor(const std::string& json_path) {
  Examination examination;
  examination.good("h3diff", fmt::format("{}, {}", version, self_path()));
  examination.good("built with", H3DIFF_LIBRARY_VERSIONS);
  examination.good("processor",
                   fmt::format("{}, {}, {}", cpu_model(), widest_isa(),
                               plural(static_cast<std::int64_t>(std::thread::hardware_concurrency()), "core")));
  const std::string folder = cases::data_folder();
  std::error_code error;
  if (std::filesystem::is_directory(folder, error)) {
    examination.good("data folder", folder);
    const auto names = cases::case_names();
    names.empty() ? examination.bad("cases", "none in the data folder") : examination.good("cases", listed(names));
    std::string broken;
    const auto profiles = cases::profile_names();
    for (const std::string& name : profiles)
      if (const auto profile = cases::load_profile(name); !profile)
        broken = profile.error().message;
    if (!broken.empty() || profiles.empty())
      examination.bad("profiles", broken.empty() ? "none in the data folder" : broken);
    else
      examination.good("profiles", listed(profiles));
  } else {
    examination.bad("data folder", fmt::format("{}: no such folder (H3DIFF_DATA names another)", folder));
  }
  examine_torch(examination);

  int code = examination.healthy() ? 0 : static_cast<int>(ExitCode::environment);
  if (json_path != "-")
    code = print_report(examination.text(Ink::for_stream(1)), code);
  return write_json({{"exit_code", code}, {"found", examination.record()}}, json_path, code);
}

} // namespace

void add_doctor(CLI::App& app, Program& program) {
  const auto json_path = std::make_shared<std::string>();
  CLI::App* verb = add_verb(app, "doctor", "Versions, devices, cases and profiles: what works on this machine",
                            "h3diff doctor", {0, 5});
  add_json_option(*verb, *json_path);
  verb->callback([&program, json_path] { program.action = [json_path] { return doctor(*json_path); }; });
}

} // namespace h3diff::cli
