// The one table of exit codes: what each means, and what a verb's --help says about it.
#pragma once
#include "h3diff/probes/result.hpp"
#include <initializer_list>
#include <string>

namespace h3diff::cli {

inline constexpr int interrupted_code = 130; // 128 + SIGINT, as shells do

struct ExitMeaning {
  int code;
  const char* meaning;
};

inline constexpr ExitMeaning exit_meanings[] = {
    {static_cast<int>(ExitCode::ok), "done; for compare: everything compared is bitwise or within"},
    {static_cast<int>(ExitCode::mismatch), "something diverged"},
    {static_cast<int>(ExitCode::usage), "wrong usage: an unknown case, profile, option or probe pattern"},
    {static_cast<int>(ExitCode::bad_input), "bad or unreadable input"},
    {static_cast<int>(ExitCode::no_evidence), "not enough was compared to say that it matches"},
    {static_cast<int>(ExitCode::environment), "environment: no such device, a missing library, a full disk"},
    {static_cast<int>(ExitCode::not_repeatable), "the run does not repeat"},
    {static_cast<int>(ExitCode::internal), "a bug of ours"},
    {interrupted_code, "interrupted; finished steps are in OUTPUT.partial"},
};

// "Exit codes:" and one line for each of `codes`, then 2 and 70, which every verb has.
std::string exit_code_help(std::initializer_list<int> codes);

} // namespace h3diff::cli
