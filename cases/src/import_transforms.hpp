#pragma once
#include "import_map.hpp"

namespace h3diff::cases {

// `where` names the place in the map for messages. bad_input for an unknown op or a wrong argument.
Result<Transform> parse_transform(const nlohmann::json&, const std::string& source, const std::string& where);

} // namespace h3diff::cases
