// What both programs share: one App, one action chosen by the verb that was parsed, one way to fail.
#pragma once
#include "h3diff/probes/result.hpp"
#include <nlohmann/json_fwd.hpp>
#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace h3diff::cli {

// A verb's callback sets the action; it runs once parsing has succeeded and returns the exit code.
struct Program {
  std::string name;               // "h3diff", also for messages of h3diff-torch
  std::vector<std::string> words; // the command line after the program's name
  std::function<int()> action;
};

// Adds a subcommand with --help text made of `example` and the exit codes.
CLI::App* add_verb(CLI::App& parent, const std::string& name, const std::string& what, const std::string& example,
                   std::initializer_list<int> codes);

// Adds `--json FILE`.
void add_json_option(CLI::App& verb, std::string& path);

// Parses and runs. Never throws; 2 for wrong usage, 70 for an exception that nothing expected.
int run_program(int argc, char** argv, const std::string& name, const std::string& description,
                const std::function<void(CLI::App&, Program&)>& add_verbs);

// "h3diff: MESSAGE" on standard error, and a record of it where --json asked for one. Returns the exit code.
int fail(const Error&, const std::string& json_path = {});

// Writes text to standard output. A report nobody could read is a failure: `code` unless writing failed.
int print_report(const std::string& text, int code);

// Writes the record to `path` by way of a temporary file ("-": standard output). Overwrites. `code` unless that
// failed; nothing is written if `path` is empty.
int write_json(const nlohmann::json& record, const std::string& path, int code);

} // namespace h3diff::cli
