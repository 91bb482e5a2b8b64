// What a run keeps of each probe: `--capture SPEC`.
//   SPEC  = ITEM[,ITEM...]      later items override earlier ones
//   ITEM  = LEVEL | PATTERN=LEVEL | budget=BYTES | rows=N | sketch=K
//   LEVEL = off | digest | stats | rows | full          (each includes the ones before it)
// BYTES takes KiB, MiB, GiB. Default: stats, budget=1GiB, rows=64, sketch=auto (256 at step -1, the first two
// and the last step, 64 between). Example: "stats,blocks.0.*=full,budget=4GiB".
#pragma once
#include "h3diff/probes/graph.hpp"
#include "h3diff/probes/result.hpp"
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace h3diff::probes {

enum class Level : std::uint8_t { off, digest, stats, rows, full };
std::string_view name(Level);

struct CaptureSpec {
  std::string text = "stats";
  std::vector<std::pair<std::string, Level>> rules; // pattern, level; the last that matches decides
  std::int64_t budget_bytes = std::int64_t{1} << 30;
  std::int64_t sample_rows = 64;
  int sketch_k = 0; // 0: auto

  static Result<CaptureSpec> parse(std::string_view text); // usage error that quotes the item
  Result<void> check(const Graph&) const;                  // usage error for a pattern that matches no probe
  Level level(std::string_view probe) const;
  int sketch(int step, int steps) const;
};

} // namespace h3diff::probes
