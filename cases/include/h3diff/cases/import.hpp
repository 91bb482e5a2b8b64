// Tensors that another program saved become a dump: docs/importing.md.
#pragma once
#include "h3diff/cases/checkpoint.hpp"
#include "h3diff/probes/result.hpp"
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace h3diff::cases {

struct ImportOptions {
  std::string source; // a folder of safetensors, .npy and raw .bin files, and optionally dump.json
  std::string bundle; // what ran: the graph, the segments, the schedule
  Checkpoint::Options checkpoint;
  std::string map; // a built-in map's name, a JSON file, or empty: canonical names alone
  std::string output;
  bool overwrite = false;
  std::string capture = "stats";
  std::string producer; // a fact of the dump
  int threads = 1;
  std::function<void(std::int64_t done, std::int64_t total)> progress; // probes
};

struct ImportSummary {
  std::int64_t probes = 0, rows = 0; // (step, probe) pairs, index rows
  std::vector<int> steps;
  std::vector<std::string> not_imported; // tensors that nothing maps
  std::vector<std::string> notes;        // one sentence each
};

// Nothing is written under `output` unless all of it was. Errors, each one sentence:
// usage: an unknown map or probe pattern, an existing output. bad_input: a damaged file, a raw file of another length,
// a dump.json that contradicts the tensors, a map that names an absent tensor, gives a probe another shape, puts two
// tensors onto one probe or still holds a guess.
Result<ImportSummary> import_tensors(const ImportOptions&);

std::vector<std::string> map_names(); // built in, sorted

struct ProposedEntry {
  std::string name, probe, reason; // probe is empty where nothing fits
};
struct Proposal {
  std::string json; // the map; every entry has "guess", which import refuses until a person has deleted it
  std::vector<ProposedEntry> entries;
};
// Drafts a map for a folder from a dump of the same case: by names, then by shapes and equal statistics, then by
// shape and order. Imports nothing.
Result<Proposal> propose_map(const std::string& source, const std::string& like);
// Writes it by way of PATH.partial; usage error for an existing path unless `overwrite`.
Result<void> write_proposal(const Proposal&, const std::string& path, bool overwrite);

} // namespace h3diff::cases
