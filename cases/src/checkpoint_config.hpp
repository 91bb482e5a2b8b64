// config.json: diffusers' keys, the raw release's keys, and the shape they state.
#pragma once
#include "h3diff/cases/checkpoint.hpp"
#include <nlohmann/json.hpp>

namespace h3diff::cases {

// True for the raw release's config.json, by the keys that only it has.
bool is_raw_config(const nlohmann::json& config);
// Overwrites what the config states. bad_input for values that are no sizes.
Result<void> apply_config(const nlohmann::json& config, const std::string& source, probes::ModelShape& shape);
// "hidden_size is 84 and not 96" for the first size in which two shapes differ; "" if they are equal.
std::string first_difference(const probes::ModelShape& found, const probes::ModelShape& stated);
// The config.json that belongs to a layout.
std::string config_json(const probes::ModelShape&, Layout);

} // namespace h3diff::cases
