// What two runs say of themselves.
#pragma once
#include "h3diff/probes/dump.hpp"
#include <optional>
#include <string>
#include <vector>

namespace h3diff::goldens {

std::optional<probes::DType> claimed_dtype(const probes::DumpReader&);

// Facts that differ, and what is unusual about a run: one sentence each.
std::vector<std::string> fact_notes(const probes::DumpReader& reference, const probes::DumpReader& candidate);

// The first differing fact that binds digests to a build: "torch 2.11.0 against 2.10.0". Empty: none.
std::string version_difference(const probes::DumpReader& reference, const probes::DumpReader& candidate);

// What the statistics and sketches of the two producers may be off by, relative to a tensor's l2.
double statistics_slack(const probes::DumpReader& reference, const probes::DumpReader& candidate);

// A fact as a word of a shell command; `otherwise` if it is absent or holds anything that a shell would interpret.
std::string shell_word(const probes::DumpReader&, const std::string& fact, const std::string& otherwise);

// A command that repeats `dump`'s run; `options` are h3diff's.
std::string rerun_command(const probes::DumpReader& dump, const std::string& options, const std::string& output);

// The same for a capture of another pipeline or of our own, with a capture specification.
// "" for a runtime that we do not start.
std::string capture_command(const probes::DumpReader& dump, const std::string& capture, std::int32_t steps,
                            const std::string& output);

} // namespace h3diff::goldens
