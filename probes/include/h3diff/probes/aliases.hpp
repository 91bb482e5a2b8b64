// Other pipelines' names for our probes. One JSON file a port in probes/aliases/:
//   {"port": "diffusers", "version": "0.42.1",
//    "names": [{"name": "transformer_blocks.{n}.attn.to_q", "probe": "blocks.{n}.attn.q"}, ...]}
// {n} stands for one decimal number. Several names may map to one probe (many-to-one where ops are fused:
// the last op's output is the probe).
#pragma once
#include "h3diff/probes/result.hpp"
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace h3diff::probes {

class AliasTable {
public:
  static Result<AliasTable> load(const std::string& path);
  static Result<AliasTable> parse(std::string_view json, const std::string& source);
  const std::string& port() const { return port_; }
  std::optional<std::string> canonical(std::string_view foreign) const;

private:
  std::string port_;
  std::vector<std::pair<std::string, std::string>> names_;
};

// The tables compiled into the library.
const std::vector<AliasTable>& builtin_aliases();

} // namespace h3diff::probes
