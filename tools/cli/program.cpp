#include "program.hpp"
#include "exit_codes.hpp"
#include "h3diff/probes/dump.hpp"
#include "terminal.hpp"
#include "version.hpp"
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <new>
#include <unistd.h>

namespace h3diff::cli {

CLI::App* add_verb(CLI::App& parent, const std::string& name, const std::string& what, const std::string& example,
                   std::initializer_list<int> codes) {
  CLI::App* verb = parent.add_subcommand(name, what);
  verb->footer("Example:\n  " + example + "\n\n" + exit_code_help(codes));
  return verb;
}

void add_json_option(CLI::App& verb, std::string& path) {
  verb.add_option("--json", path, "Write the record as JSON to FILE (- for standard output)")->type_name("FILE");
}

namespace {

// CLI11 says "The following argument was not expected: foo", which hides that a verb was meant.
std::string parse_message(const CLI::App& app, const CLI::ParseError& error, const Program& program) {
  const CLI::App* level = &app;
  std::size_t depth = 0;
  while (!level->get_subcommands().empty()) {
    level = level->get_subcommands().front();
    ++depth;
  }
  const bool wants_verb = !level->get_subcommands([](const CLI::App*) { return true; }).empty();
  if (wants_verb && depth < program.words.size() && program.words[depth].rfind('-', 0) != 0)
    return fmt::format("there is no verb '{}'", probes::printable(program.words[depth]));
  if (wants_verb && depth >= program.words.size())
    return "a verb is missing";
  return probes::printable(error.what(), 400);
}

std::string command_path(const CLI::App& app, const std::string& name) {
  std::string path = name;
  for (const CLI::App* level = &app; !level->get_subcommands().empty();) {
    level = level->get_subcommands().front();
    path += " " + level->get_name();
  }
  return path;
}

} // namespace

int run_program(int argc, char** argv, const std::string& name, const std::string& description,
                const std::function<void(CLI::App&, Program&)>& add_verbs) {
  try {
    Program program{name, {argv + 1, argv + argc}, {}};
    CLI::App app(description, name);
    app.set_version_flag("--version", fmt::format("{} {}", name, version));
    app.require_subcommand(1);
    app.footer("h3diff VERB --help shows a verb's options, an example and its exit codes.");
    app.get_formatter()->column_width(36);
    add_verbs(app, program);
    if (program.words.empty()) {
      std::fputs(app.help().c_str(), stderr);
      return static_cast<int>(ExitCode::usage);
    }
    try {
      app.parse(argc, argv);
    } catch (const CLI::Success& asked) { // --help, --version
      return app.exit(asked);
    } catch (const CLI::ParseError& error) {
      const std::string path = command_path(app, name);
      fmt::print(stderr, "{}: {}\n{} --help shows what it takes.\n", path, parse_message(app, error, program), path);
      return static_cast<int>(ExitCode::usage);
    }
    return program.action();
  } catch (const std::bad_alloc&) {
    return fail(environment_error("out of memory"));
  } catch (const std::exception& error) {
    return fail({ExitCode::internal, fmt::format("this is a bug of ours: {}", error.what())});
  } catch (...) {
    return fail({ExitCode::internal, "this is a bug of ours: an exception of unknown type"});
  }
}

int fail(const Error& error, const std::string& json_path) {
  fmt::print(stderr, "h3diff: {}\n", error.message);
  const int code = static_cast<int>(error.code);
  if (json_path.empty())
    return code;
  return write_json({{"verdict", "tool_error"}, {"exit_code", code}, {"error", error.message}}, json_path, code);
}

int print_report(const std::string& text, int code) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0)
    return code;
  return fail(environment_error(fmt::format("cannot write the report to standard output: {}", std::strerror(errno))));
}

int write_json(const nlohmann::json& record, const std::string& path, int code) {
  if (path.empty())
    return code;
  const std::string text = record.dump(2, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
  if (path == "-")
    return print_report(text, code);
  // Devices and pipes are written in place; a file appears under its name only when it is complete.
  std::error_code ignored;
  const bool special = std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored);
  const std::string target = special ? path : fmt::format("{}.{}.partial", path, getpid());
  std::FILE* file = std::fopen(target.c_str(), "wb");
  bool good = file != nullptr;
  int reason = errno;
  if (good) {
    good = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    reason = good ? reason : errno;
    const bool closed = std::fclose(file) == 0;
    if (good && !closed)
      reason = errno;
    good = good && closed;
  }
  if (good && !special && std::rename(target.c_str(), path.c_str()) != 0) {
    reason = errno;
    good = false;
  }
  if (good)
    return code;
  if (file != nullptr && !special)
    std::remove(target.c_str());
  return fail(environment_error(fmt::format("{}: cannot write the record: {}", path, std::strerror(reason))));
}

} // namespace h3diff::cli
